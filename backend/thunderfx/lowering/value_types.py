"""Trace types of the values that FX nodes carry in their metadata. Reading them adds no guard."""

from __future__ import annotations

from typing import Any

import torch

from thunderfx.trace import OpaqueType, ScalarType, SequenceType, TensorType, ValueType

_SYM_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)


def dim(value: Any) -> int | str:
    """A size or stride: its number, or the text of its symbolic expression."""
    if isinstance(value, torch.SymInt):
        expr = value.node.expr
        return int(expr) if expr.is_Integer else str(expr)
    return int(value)


def hint(value: Any) -> int | None:
    """The number that a size has for the example inputs; ``None`` for a size known only at run time."""
    if isinstance(value, torch.SymInt):
        known = value.node.hint
        return None if known is None else int(known)
    return int(value)


def hinted_bytes(value: Any) -> int:
    """Bytes of a tensor at the example inputs' sizes, 0 for anything else or where a size is not known."""
    if not isinstance(value, torch.Tensor):
        return 0
    total = value.dtype.itemsize
    for size in value.shape:
        known = hint(size)
        if known is None:
            return 0
        total *= known
    return total


def saved_bytes(backward: torch.fx.GraphModule) -> int:
    """Bytes that a backward graph receives from the forward one, inputs of the subgraph not counted."""
    total = 0
    for node in backward.graph.nodes:
        if node.op == "placeholder" and not node.name.startswith(("tangents_", "primals_")):
            total += hinted_bytes(node.meta.get("val"))
    return total


def _stride(value: torch.Tensor) -> tuple[int | str, ...] | None:
    """Strides in elements, ``None`` where they are those of a contiguous tensor."""
    if value.layout is not torch.strided:
        return None
    expected: Any = 1
    contiguous = True
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        size_expr = size.node.expr if isinstance(size, torch.SymInt) else size
        stride_expr = stride.node.expr if isinstance(stride, torch.SymInt) else stride
        if size_expr == 0:
            return None
        if size_expr != 1 and stride_expr != expected:
            contiguous = False
        expected = expected * size_expr
    return None if contiguous else tuple(dim(stride) for stride in value.stride())


def tensor_type(value: torch.Tensor) -> TensorType:
    return TensorType(
        dtype=str(value.dtype).removeprefix("torch."),
        shape=tuple(dim(size) for size in value.shape),
        device=str(value.device),
        stride=_stride(value),
        requires_grad=value.requires_grad,
        layout=str(value.layout).removeprefix("torch."),
    )


def value_type(value: Any) -> ValueType:
    """Type of a node's value."""
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if isinstance(value, _SYM_TYPES):
        return ScalarType(type(value).__name__, str(value.node.expr))
    if isinstance(value, (bool, int, float, complex)):
        return ScalarType(type(value).__name__, repr(value))
    if isinstance(value, (list, tuple)):
        return SequenceType(tuple(value_type(item) for item in value))
    return OpaqueType(type(value).__name__)
