"""What ``thunderfx(fn)`` returns."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
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

    __slots__ = ("_tfx_backend", "_tfx_called", "_tfx_func")

    def __new__(cls, backend: ThunderCompiler, func: Callable[..., Any]) -> ThunderFXCompiledObject:
        original = getattr(func, "_orig_mod", func)
        if not isinstance(original, torch.nn.Module):
            return object.__new__(cls)
        obj: ThunderFXCompiledObject = object.__new__(_module_class(type(original)))  # type: ignore[arg-type]
        object.__setattr__(obj, "__dict__", original.__dict__)
        return obj

    def __init__(self, backend: ThunderCompiler, func: Callable[..., Any]) -> None:
        object.__setattr__(self, "_tfx_backend", backend)
        object.__setattr__(self, "_tfx_func", func)
        object.__setattr__(self, "_tfx_called", False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        object.__setattr__(self, "_tfx_called", True)
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
        infos: list[SubgraphInfo] = self._tfx_backend.subgraph_infos
        return infos

    @property
    def fallbacks(self) -> list[tuple[int, FallbackInfo]]:
        """Every fallback with the index of its subgraph."""
        return [(info.index, item) for info in self._tfx_backend.subgraph_infos for item in info.fallbacks]

    def _tfx_warn(self, what: str) -> None:
        if not self._tfx_called and not self._tfx_backend.subgraph_infos:
            warnings.warn(f"{what} is empty: the object must be called first", UserWarning, stacklevel=3)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A decorated method binds like a function."""
        return self if instance is None else functools.partial(self.__call__, instance)

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
        return getattr(self._tfx_func, "_orig_mod", None) or getattr(self._tfx_func, "_torchdynamo_orig_callable", None)


def recompiled(backend: ThunderCompiler, fn: Callable[..., Any]) -> ThunderFXCompiledObject:
    """Compile ``fn`` with a new backend of the same options."""
    fresh = ThunderCompiler(executors=backend.executors, transforms=backend.transforms, strict=backend.strict)
    return ThunderFXCompiledObject(fresh, torch.compile(fn, backend=fresh))


class _ModuleMixin(ThunderFXCompiledObject):
    """Makes the module's own attribute look-up and printing come before the plain object's."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        return torch.nn.Module.__getattr__(self, name)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"ThunderFXCompiledObject({torch.nn.Module.__repr__(self._tfx_original())})"


@functools.cache
def _module_class(original: type) -> type:
    """The class of compiled objects for modules of class ``original``."""
    return type(original.__name__, (_ModuleMixin, original), {"__module__": original.__module__})
