"""thunderfx: a Thunder backend for TorchDynamo whose traces can be read. Names load on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunderfx.dynamo import SubgraphInfo, ThunderCompiler, ThunderFXCompiledObject, last_traces, thunderfx
    from thunderfx.passes.pipeline import transform
    from thunderfx.trace import BoundSymbol, TraceCtx

__version__ = "0.1.0"
__all__ = [
    "BoundSymbol",
    "SubgraphInfo",
    "ThunderCompiler",
    "ThunderFXCompiledObject",
    "TraceCtx",
    "last_traces",
    "thunderfx",
    "transform",
]

_HOMES = {"BoundSymbol": "thunderfx.trace", "TraceCtx": "thunderfx.trace", "transform": "thunderfx.passes.pipeline"}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'thunderfx' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES.get(name, "thunderfx.dynamo")), name)
    globals()[name] = value
    return value
