"""Floating-point operations and bytes of a line, from its operands' types.

FLOPs are those of torch's own formulas (``torch.utils.flop_counter``), so that they sum to what ``FlopCounterMode``
counts for eager; an operator without a formula has none there either. Bytes are the least that the line must move:
each operand read once, each result written once.

Private names of torch used here (checked on 2.13): ``flop_registry``, ``sdpa_flop_count`` and
``sdpa_backward_flop_count`` of torch/utils/flop_counter.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from thunderfx.codegen import resolve
from thunderfx.profiling.roofline import types_of
from thunderfx.profiling.sizes import Sizes
from thunderfx.profiling.storage import shared_operand
from thunderfx.trace import (
    BoundSymbol,
    ListArg,
    Ref,
    ScalarType,
    TensorType,
    TraceCtx,
    TraceError,
    TupleArg,
    ValueType,
    Variable,
)
from thunderfx.trace.bound_symbol import DEL, bodies_in

_ATTENTION = ("aten._scaled_dot_product_", "torch.ops.thunderfx.attention")
#: Operators that read as much of their first operand as they write.
_GATHERING = ("aten.embedding.", "aten.index.", "aten.index_select.", "aten.gather.")
#: Operators that write over their first operand without reading it.
_OVERWRITING = ("aten.copy_.", "aten.fill_.", "aten.zero_.")


class Work(msgspec.Struct, frozen=True):
    flops: int | None = None  #: ``None``: torch has no formula
    estimated_flops: int = 0
    moved_bytes: int | None = None
    members: tuple[Work, ...] = ()


def work_of(line: BoundSymbol, types: Mapping[str, ValueType], sizes: Sizes) -> Work:
    """Work of one line; of a fusion the sum of its members' FLOPs and the bytes that enter and leave it."""
    if line.symbol == DEL:
        return Work(moved_bytes=0)
    moved = _moved_bytes(line, types, sizes)
    if line.subsymbols:
        members = tuple(work_of(member, types, sizes) for member in line.subsymbols)
        known = [member.flops for member in members if member.flops is not None]
        estimated = sum(member.estimated_flops for member in members)
        return Work(sum(known) if known else None, estimated, moved, members)
    flops = _flops(line, types, sizes)
    estimated = _attention_flops(line, types, sizes) if flops is None and line.symbol.startswith(_ATTENTION) else 0
    return Work(flops, estimated, moved)


def _moved_bytes(line: BoundSymbol, types: Mapping[str, ValueType], sizes: Sizes) -> int | None:
    if line.has_tag("view") and not line.subsymbols:
        return 0
    if shared_operand(line) is not None and not line.has_tag("mutation"):
        return 0
    written = [sizes.nbytes(var.type) for var in line.defines()]
    names = list(dict.fromkeys(line.uses()))
    if line.symbol.startswith(_OVERWRITING):
        names = names[1:]
    read = [sizes.touched_bytes(types.get(name)) for name in names]
    if line.symbol.startswith(_GATHERING) and read:
        read[0] = sum(nbytes or 0 for nbytes in written)
    parts = [*read, *written]
    return None if any(part is None for part in parts) else sum(part for part in parts if part is not None)


def _flops(line: BoundSymbol, types: Mapping[str, ValueType], sizes: Sizes) -> int | None:
    bodies = [body.trace for arg in line.args for body in bodies_in(arg)]
    if bodies:
        totals = [_body_flops(body, sizes) for body in bodies]
        return max(totals) if line.symbol.endswith(".cond") else sum(totals)
    formula = _formula(line.symbol)
    if formula is None:
        return None
    args = [_value(arg, types, sizes) for arg in line.args]
    kwargs = {key: _value(arg, types, sizes) for key, arg in line.kwargs}
    results = tuple(_meta(var, sizes) for var in line.outputs)
    try:
        return int(formula(*args, **kwargs, out_val=results if line.unpack else next(iter(results), None)))
    except (TypeError, ValueError, IndexError, AssertionError):  # a size is not known at this place
        return None


def _body_flops(body: TraceCtx, sizes: Sizes) -> int:
    types = types_of(body)
    return sum(_flops(line, types, sizes) or 0 for line in body.bound_symbols)


@functools.lru_cache(maxsize=4096)
def _formula(symbol: str) -> Any:
    try:
        found = resolve(symbol)
    except TraceError:
        return None
    return flop_registry.get(found.overloadpacket if isinstance(found, torch._ops.OpOverload) else found)


def _value(arg: Any, types: Mapping[str, ValueType], sizes: Sizes) -> Any:
    """``arg`` as a formula takes it: tensors without memory, numbers, lists of both."""
    if isinstance(arg, Ref):
        type_ = types.get(arg.name)
        if isinstance(type_, TensorType):
            return _meta(Variable(arg.name, type_), sizes)
        return sizes.number(type_.value) if isinstance(type_, ScalarType) else None
    if isinstance(arg, (ListArg, TupleArg)):
        return [_value(item, types, sizes) for item in arg.items]
    return arg if isinstance(arg, (bool, int, float, str)) else None


def _meta(var: Variable | None, sizes: Sizes) -> Any:
    if var is None or not isinstance(var.type, TensorType):
        return None
    shape = sizes.numbers(var.type.shape)
    if shape is None:
        return None
    return torch.empty(shape, dtype=getattr(torch, var.type.dtype), device="meta")


def _attention_flops(line: BoundSymbol, types: Mapping[str, ValueType], sizes: Sizes) -> int:
    """By the formula that torch has for the other attention kernels; heads that share a key head count as their own."""
    shapes = list(_four_dims(line, types, sizes))
    backward = "backward" in line.symbol
    if len(shapes) < 3 + backward:
        return 0
    grad, (query, key, value) = shapes[0], shapes[backward : 3 + backward]
    key, value = (*key[:1], query[1], *key[2:]), (*value[:1], query[1], *value[2:])
    if backward:
        return int(sdpa_backward_flop_count(grad, query, key, value))  # type: ignore[no-untyped-call]
    return int(sdpa_flop_count(query, key, value))  # type: ignore[no-untyped-call]


def _four_dims(line: BoundSymbol, types: Mapping[str, ValueType], sizes: Sizes) -> Iterator[tuple[int, ...]]:
    for arg in line.args:
        type_ = types.get(arg.name) if isinstance(arg, Ref) else None
        shape = sizes.numbers(type_.shape) if isinstance(type_, TensorType) else None
        if shape is not None and len(shape) == 4:
            yield shape
