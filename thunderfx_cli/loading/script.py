"""Script mode: run the user's file as ``__main__`` with its compile calls redirected."""

from __future__ import annotations

import ast
import contextlib
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunderfx_cli.errors import CommandError, UsageError
from thunderfx_cli.loading.capture import NameWrapper, OnCompiled, WrapCompile, redirected_compile
from thunderfx_cli.loading.mode import defined_names
from thunderfx_cli.loading.rewrite import WRAP, wrap_name
from thunderfx_cli.loading.source import parse_source, read_source, shown_path
from thunderfx_cli.loading.user_errors import user_code_error


@dataclass(frozen=True)
class ScriptResult:
    """``exit_code`` as the shell would see it: 0 if the script ended by itself or exited with 0 or ``None``."""

    exit_code: int


def run_script(
    path: Path,
    argv: Sequence[str],
    *,
    wrap_compile: WrapCompile,
    on_compiled: OnCompiled | None = None,
    compile_name: str | None = None,
) -> ScriptResult:
    """Run ``path`` as ``__main__`` with ``sys.argv == [path, *argv]``; the interpreter's state is restored afterwards.

    ``wrap_compile(model_or_fn, **kwargs)`` takes the place of ``torch.compile``; ``on_compiled(compiled, backend)``
    sees calls with a backend object (see :func:`redirected_compile`). ``compile_name`` is compiled wherever the
    script binds it. Raises :class:`UserCodeError` for what the script raises, and :class:`UsageError` if
    ``compile_name`` is never bound, or never to something that can be compiled.
    """
    filename = str(path.absolute())
    tree = parse_source(read_source(path), filename)
    wrapper = NameWrapper(wrap_compile)
    if compile_name is not None and not wrap_name(tree, compile_name):
        names = ", ".join(sorted(defined_names(tree))) or "nothing"
        raise UsageError(
            f"--compile {compile_name}: {shown_path(path)} never assigns {compile_name}",
            hint=f"At top level it defines {names}.",
        )
    with redirected_compile(wrap_compile, on_compiled), _as_main(filename, [str(path), *argv]) as main:
        main[WRAP] = wrapper
        exit_code = _execute(tree, filename, main)
    if compile_name is not None and exit_code == 0 and not wrapper.wrapped:
        raise UsageError(
            f"--compile {compile_name}: in {shown_path(path)} it was never a module, a module class or a function"
        )
    return ScriptResult(exit_code)


def _execute(tree: ast.Module, filename: str, namespace: dict[str, Any]) -> int:
    try:
        exec(compile(tree, filename, "exec", dont_inherit=True), namespace)
    except SystemExit as exc:
        return _exit_code(exc)
    except CommandError:
        raise
    except Exception as exc:
        raise user_code_error(exc, [filename, Path(filename).parent]) from exc
    return 0


def _exit_code(exc: SystemExit) -> int:
    """Python's rules: ``None`` is 0, a number is itself (one byte), anything else is printed to stderr and is 1."""
    if exc.code is None:
        return 0
    if isinstance(exc.code, int):
        return exc.code & 0xFF
    print(exc.code, file=sys.stderr)
    return 1


@contextlib.contextmanager
def _as_main(filename: str, argv: list[str]) -> Iterator[dict[str, Any]]:
    """The namespace of a fresh ``__main__``, which is in ``sys.modules`` so that pickle and dataclasses find it."""
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=filename,
        __cached__=None,
        __loader__=importlib.machinery.SourceFileLoader("__main__", filename),
        __builtins__=__builtins__,
    )
    saved_main, saved_argv, saved_path = sys.modules.get("__main__"), sys.argv, list(sys.path)
    sys.modules["__main__"] = main
    sys.argv = argv
    sys.path.insert(0, str(Path(filename).parent))
    try:
        yield main.__dict__
    finally:
        sys.argv = saved_argv
        sys.path[:] = saved_path
        if saved_main is not None:
            sys.modules["__main__"] = saved_main
        else:
            del sys.modules["__main__"]
