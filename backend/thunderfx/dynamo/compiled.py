"""What ``thunderfx(fn)`` returns."""

from __future__ import annotations

import copy
import functools
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from thunderfx.dynamo.compiler import ThunderCompiler
from thunderfx.dynamo.subgraph import FallbackInfo, SubgraphInfo
from thunderfx.trace import TraceCtx


class ThunderFXCompiledObject:
    """A compiled function or module, with the traces that its calls produced.

    ``func`` is what ``torch.compile(fn, backend=backend)`` returned. For a module the object is a module too, of a
    subclass of the original's class that shares the original's state: parameters, buffers, submodules, hooks and
    mode are the original's own, under the original's names.
    """

    # The object's own state is kept in its class, of which each object has one: the instance's __dict__ is the
    # original module's, and slots would clash with those of the original's class.
    __slots__ = ()
    _tfx_backend: ThunderCompiler
    _tfx_func: Callable[..., Any]
    _tfx_called: bool

    def __new__(cls, backend: ThunderCompiler, func: Callable[..., Any]) -> ThunderFXCompiledObject:
        original = getattr(func, "_orig_mod", func)
        state = {"_tfx_backend": backend, "_tfx_func": staticmethod(func), "_tfx_called": False}
        if not isinstance(original, torch.nn.Module):
            return object.__new__(type("CompiledFunction", (_CompiledFunction,), state))
        if func is original:  # torch.compile(disable=True)
            state["__call__"] = ThunderFXCompiledObject.__call__
        kind = type(original)
        state |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        obj: ThunderFXCompiledObject = object.__new__(type(kind.__name__, (_CompiledModule, kind), state))
        object.__setattr__(obj, "__dict__", original.__dict__)
        return obj

    def __init__(self, backend: ThunderCompiler, func: Callable[..., Any]) -> None:
        """Everything is done in ``__new__``; this keeps the original's ``__init__`` from running again."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._tfx_called:
            type(self)._tfx_called = True
        return self._tfx_func(*args, **kwargs)

    @property
    def last_traces(self) -> list[TraceCtx]:
        """The final trace of every forward subgraph, in order of compilation; warns before the first call."""
        self._tfx_warn("last_traces")
        return [info.forward for info in self._tfx_backend.subgraph_infos if info.forward is not None]

    @property
    def last_backward_traces(self) -> list[TraceCtx]:
        """The final trace of every backward subgraph; a subgraph that needs no gradient has none."""
        self._tfx_warn("last_backward_traces")
        return [info.backward for info in self._tfx_backend.subgraph_infos if info.backward is not None]

    @property
    def subgraph_infos(self) -> list[SubgraphInfo]:
        """One record for each compiled Dynamo graph."""
        return self._tfx_backend.subgraph_infos

    @property
    def fallbacks(self) -> list[tuple[int, FallbackInfo]]:
        """Every fallback with the index of its subgraph."""
        return [(info.index, item) for info in self._tfx_backend.subgraph_infos for item in info.fallbacks]

    def save_reproducer_to_folder(self, folder: str | Path, use_pytest_benchmark: bool = False) -> list[Path]:
        """As :meth:`ThunderCompiler.save_reproducer_to_folder`."""
        return self._tfx_backend.save_reproducer_to_folder(folder, use_pytest_benchmark)

    def _tfx_warn(self, what: str) -> None:
        if not self._tfx_called and not self._tfx_backend.subgraph_infos:
            warnings.warn(f"{what} is empty: the object must be called first", UserWarning, stacklevel=3)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_tfx_"):
            raise AttributeError(name)
        return getattr(self._tfx_func, name)

    def __repr__(self) -> str:
        return f"ThunderFXCompiledObject({getattr(self._tfx_func, '__name__', repr(self._tfx_func))})"

    def __deepcopy__(self, memo: dict[int, Any]) -> ThunderFXCompiledObject:
        """A copy compiles anew: a copied module has its own state."""
        return recompiled(self._tfx_backend, copy.deepcopy(self._tfx_original(), memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a ThunderFXCompiledObject cannot be pickled; save the state_dict() of its module instead")

    def _tfx_original(self) -> Any:
        """What was compiled; ``torch.compile(disable=True)`` gives it back as it is."""
        func = self._tfx_func
        return getattr(func, "_orig_mod", None) or getattr(func, "_torchdynamo_orig_callable", func)


def uncompiled(fn: Any) -> Any:
    """The function or module behind a compiled one; anything else as it is."""
    while True:
        if isinstance(fn, ThunderFXCompiledObject):
            fn = fn._tfx_original()
        elif isinstance(fn, torch.nn.Module) and "_orig_mod" in fn._modules:
            fn = fn._orig_mod
        else:
            return fn


def recompiled(backend: ThunderCompiler, fn: Callable[..., Any]) -> ThunderFXCompiledObject:
    """Compile ``fn`` with a new backend of the same options."""
    fresh = ThunderCompiler(executors=backend.executors, transforms=backend.transforms, strict=backend.strict)
    return ThunderFXCompiledObject(fresh, torch.compile(fn, backend=fresh))


class _CompiledFunction(ThunderFXCompiledObject):
    """A compiled function; as a class attribute it binds like one."""

    __slots__ = ("__dict__", "__weakref__")

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self.__call__, instance)


class _CompiledModule(ThunderFXCompiledObject):
    """What a compiled module has before its original's class in the order of look-up."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What ``OptimizedModule.__call__`` adds to its ``forward`` is for hooks of its own, which none can be here."""
        if not self._tfx_called:
            type(self)._tfx_called = True
        return self._tfx_func.forward(*args, **kwargs)  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:
        """The original's own look-up; a slot of the original is read from the original."""
        own: Any = super(ThunderFXCompiledObject, self)
        try:
            return own.__getattr__(name)
        except AttributeError:
            if isinstance(getattr(type(self), name, None), types.MemberDescriptorType):
                return getattr(self._tfx_original(), name)
            raise

    def __repr__(self) -> str:
        return f"ThunderFXCompiledObject({self._tfx_original()!r})"
