"""The trace intermediate representation: data, printing, JSON, checking, alignment. Imports no torch."""

from thunderfx.trace.bound_symbol import BoundSymbol, Origin
from thunderfx.trace.check import TraceError, check
from thunderfx.trace.codec import TraceDecodeError, from_json, to_json
from thunderfx.trace.trace import Constant, FusionRecord, TraceCtx
from thunderfx.trace.types import OpaqueType, ScalarType, SequenceType, TensorType, ValueType
from thunderfx.trace.unfuse import unfused
from thunderfx.trace.values import Arg, Body, DictArg, ListArg, Literal, Ref, SliceArg, TupleArg, Variable

__all__ = [
    "Arg",
    "Body",
    "BoundSymbol",
    "Constant",
    "DictArg",
    "FusionRecord",
    "ListArg",
    "Literal",
    "OpaqueType",
    "Origin",
    "Ref",
    "ScalarType",
    "SequenceType",
    "SliceArg",
    "TensorType",
    "TraceCtx",
    "TraceDecodeError",
    "TraceError",
    "TupleArg",
    "ValueType",
    "Variable",
    "check",
    "from_json",
    "to_json",
    "unfused",
]
