"""Redirecting ``torch.compile`` while a script runs, and compiling objects that the script never compiles.

Private names of torch used here (checked on 2.13): ``nn.Module._call_impl`` and ``_compiled_call_impl``,
``torch._dynamo.external_utils.wrap_inline``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WrapCompile = Callable[
    ..., Any
]  #: ``wrap_compile(model_or_fn, **kwargs)``; kwargs: ``fullgraph``, ``dynamic`` if given
OnCompiled = Callable[[Any, Any], None]  #: ``on_compiled(compiled, backend)``


@contextmanager
def redirected_compile(wrap_compile: WrapCompile, on_compiled: OnCompiled | None = None) -> Iterator[None]:
    """While it lasts, ``torch.compile`` and ``nn.Module.compile`` with a backend given by name call ``wrap_compile``.

    A backend that is an object is the caller's own choice (``thunderfx`` and ``wrap_compile`` use it too): the call
    goes to PyTorch, and ``on_compiled`` sees the result. ``mode`` and ``options`` are meant for inductor and dropped;
    ``disable=True`` stays PyTorch's.
    """
    import torch

    original, original_method = torch.compile, torch.nn.Module.compile
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        model = bound.pop("model", None)
        if model is None:
            return lambda decorated: compile(decorated, **bound)
        backend = bound.get("backend")
        if bound.get("disable"):
            return original(model, **bound)
        if backend is not None and not isinstance(backend, str):
            compiled = original(model, **bound)
            if on_compiled is not None:
                on_compiled(compiled, backend)
            return compiled
        return wrap_compile(model, **{key: bound[key] for key in ("fullgraph", "dynamic") if key in bound})

    @functools.wraps(original_method)
    def compile_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        call = self._call_impl
        if type(self).forward.__module__.startswith("torch.nn."):
            # Dynamo starts in no frame of torch's own files; here it starts in one that calls it.
            call = torch._dynamo.external_utils.wrap_inline(call)
        # Past nn.Module.__setattr__, which would register a compiled object that is itself a module as a submodule.
        object.__setattr__(self, "_compiled_call_impl", torch.compile(call, *args, **kwargs))

    torch.compile = compile
    torch.nn.Module.compile = compile_module  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.compile = original
        torch.nn.Module.compile = original_method  # type: ignore[method-assign]


def original_of(compiled: Any) -> Any:
    """The module or function that ``torch.compile`` or ``thunderfx`` wrapped; ``None`` if ``compiled`` is not wrapped.

    PyTorch marks modules with ``_orig_mod`` and functions with ``_torchdynamo_orig_callable``
    (torch/_dynamo/eval_frame.py); a ``ThunderFXCompiledObject`` keeps what ``torch.compile`` returned.
    """
    compiled = getattr(compiled, "_tfx_func", compiled)
    original = getattr(compiled, "_orig_mod", None)
    return getattr(compiled, "_torchdynamo_orig_callable", None) if original is None else original


class NameWrapper:
    """What ``--compile NAME`` calls with each value that NAME takes, while :func:`redirected_compile` is active.

    A module is compiled in place, as ``module.compile()`` does, so that its identity, type and parameters stay. A
    module class compiles each instance once that is constructed. A function is replaced. Anything else is left alone.
    """

    def __init__(self, wrap_compile: WrapCompile) -> None:
        self._wrap_compile = wrap_compile
        self._functions: list[tuple[Any, Any]] = []  # original and compiled: neither is compiled again
        self.wrapped = 0

    def __call__(self, value: Any) -> Any:
        import torch

        if original_of(value) is not None:
            self.wrapped += 1  # the script compiles it after all
        elif isinstance(value, torch.nn.Module):
            self._compile_module(value)
        elif isinstance(value, type) and issubclass(value, torch.nn.Module):
            self._compile_instances(value)
        elif inspect.isfunction(value) or inspect.ismethod(value):
            return self._compile_function(value)
        return value

    def _compile_module(self, module: Any) -> None:
        if getattr(module, "_compiled_call_impl", None) is None:
            self.wrapped += 1
            module.compile()

    def _compile_function(self, function: Any) -> Any:
        for original, compiled in self._functions:
            if function is original or function is compiled:
                return compiled
        compiled = self._wrap_compile(function)
        self.wrapped += 1
        self._functions.append((function, compiled))
        return compiled

    def _compile_instances(self, kind: Any) -> None:
        """Replace ``kind.__init__``: the class itself must stay, for ``super()``, ``isinstance`` and pickling."""
        original = kind.__init__
        if getattr(original, "_compiles_instances_of", None) is kind:
            return
        self.wrapped += 1

        @functools.wraps(original)
        def __init__(module: Any, *args: Any, **kwargs: Any) -> None:
            original(module, *args, **kwargs)
            if type(module) is kind:
                self._compile_module(module)

        __init__._compiles_instances_of = kind  # type: ignore[attr-defined]
        kind.__init__ = __init__
