"""Turning what the user's code raised into an error that names the user's file and line, not our stack."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from thunderfx_cli.errors import CommandError, UserCodeError
from thunderfx_cli.loading.source import shown_path, syntax_message

#: How TorchDynamo reports the user's stack inside a message (torch/_dynamo/exc.py, ``augment_exc_message``).
_USER_STACK = re.compile(r"^from user code:\s*\n(.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
_FRAME = re.compile(r'^\s*File "(.+?)", line (\d+), in ', re.MULTILINE)
_THIRD_PARTY = {"site-packages", "dist-packages"}
Place = tuple[str, int]


@contextmanager
def user_code(files: Iterable[str | Path] | None = None) -> Iterator[None]:
    """Run the user's code: what it raises leaves as :class:`UserCodeError`, chained. Our own errors pass unchanged.

    ``SystemExit`` counts as a failure here; a script, which may exit, is run by :mod:`thunderfx_cli.loading.script`.
    """
    known = None if files is None else list(files)
    try:
        yield
    except CommandError:
        raise
    except SystemExit as exc:
        raise UserCodeError(f"the file called sys.exit({exc.code!r})", where=user_place(exc, known)) from exc
    except Exception as exc:
        raise user_code_error(exc, known) from exc


def user_code_error(exc: BaseException, files: Iterable[str | Path] | None = None) -> UserCodeError:
    """The error to show for ``exc``; the caller raises it ``from exc``.

    ``files`` are files or folders of the user; a frame outside of them also counts unless it belongs to the
    standard library, an installed package, or us.
    """
    known = None if files is None else list(files)
    message, hint = _describe(exc)
    return UserCodeError(message, where=user_place(exc, known), hint=hint)


def user_place(exc: BaseException, files: Iterable[str | Path] | None = None) -> str:
    """``file:line`` of the innermost frame of the user, or ``""`` if there is none."""
    known = [os.path.realpath(file) for file in files or ()]
    if isinstance(exc, SyntaxError) and exc.filename and exc.lineno and os.path.isfile(exc.filename):
        return f"{shown_path(exc.filename)}:{exc.lineno}"
    for link in _chain(exc):
        for filename, line in reversed(_dynamo_stack(link) or _stack(link)):
            if _is_users(filename, known):
                return f"{shown_path(filename)}:{line}"
    return ""


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """``exc`` and what led to it, also past ``raise ... from None``, which TorchDynamo uses to hide its own frames."""
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _stack(exc: BaseException) -> list[Place]:
    return [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(exc.__traceback__)]


def _dynamo_stack(exc: BaseException) -> list[Place]:
    """The user's frames that TorchDynamo wrote into the message, outermost first; they are not in the traceback."""
    if not _is_dynamo(exc):
        return []
    found = _USER_STACK.search(str(exc))
    return [(name, int(line)) for name, line in _FRAME.findall(found.group(1))] if found else []


def _is_dynamo(exc: BaseException) -> bool:
    return any(kind.__module__.startswith("torch._dynamo.") for kind in type(exc).__mro__)


@functools.cache
def _library_folders() -> tuple[str, ...]:
    """Folders of the standard library, torch (which may be a source checkout), the backend and the command line."""
    folders = {sysconfig.get_path(key) for key in ("stdlib", "platstdlib")}
    for package in ("torch", "thunderfx", "thunderfx_cli"):
        spec = importlib.util.find_spec(package)
        folders.update(spec.submodule_search_locations or () if spec else ())
    return tuple(os.path.realpath(folder) + os.sep for folder in folders if folder)


def _is_users(filename: str, known: list[str]) -> bool:
    if filename.startswith("<"):  # generated code, frozen modules, exec of a string
        return False
    full = os.path.realpath(filename)
    if full in known:
        return True
    for folder in known:
        if full.startswith(folder + os.sep):
            return not _THIRD_PARTY.intersection(Path(os.path.relpath(full, folder)).parts)
    return not _THIRD_PARTY.intersection(Path(full).parts) and not full.startswith(_library_folders())


def _describe(exc: BaseException) -> tuple[str, str]:
    """Message and hint."""
    if isinstance(exc, SyntaxError):
        return syntax_message(exc), ""
    if not _is_dynamo(exc):
        return _named(exc), ""
    kind = type(exc).__name__
    root = next((link for link in _chain(exc) if not _is_dynamo(link)), None)
    if kind == "BackendCompilerFailed" and root is not None:
        return f"the backend failed to compile: {_named(root)}", ""
    if kind == "TorchRuntimeError" and root is not None:
        return _named(root), ""
    return _describe_dynamo(exc)


def _describe_dynamo(exc: BaseException) -> tuple[str, str]:
    """Summary, explanation and first hint of a graph break that was an error (``fullgraph=True``)."""
    text = str(exc)
    raised = re.search(r"raised exception (\w.*)$", text, re.MULTILINE)
    if raised:
        return raised.group(1), ""
    summary = text.strip().split("\n", 1)[0]
    explanation = re.search(r"^\s*Explanation: (.+)$", text, re.MULTILINE)
    hint = re.search(r"^\s*Hint: (.+)$", text, re.MULTILINE)
    message = f"{type(exc).__name__}: {summary}"
    if explanation:
        message += f"\n    {explanation.group(1).strip()}"
    return message, hint.group(1).strip() if hint else ""


def _named(exc: BaseException) -> str:
    text = str(exc).strip()
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__
