"""The TorchDynamo side: ``thunderfx()``, the compiled object, the compiler and its record of subgraphs."""

from thunderfx.dynamo.compiled import ThunderFXCompiledObject
from thunderfx.dynamo.compiler import ThunderCompileError, ThunderCompiler
from thunderfx.dynamo.entry import last_traces, thunderfx
from thunderfx.dynamo.recording import RECORDED, RecordingCompiler
from thunderfx.dynamo.reproducer import ReproducerError
from thunderfx.dynamo.subgraph import FallbackInfo, SubgraphInfo

__all__ = [
    "RECORDED",
    "FallbackInfo",
    "RecordingCompiler",
    "ReproducerError",
    "SubgraphInfo",
    "ThunderCompileError",
    "ThunderCompiler",
    "ThunderFXCompiledObject",
    "last_traces",
    "thunderfx",
]
