"""What is asked of a node of the graph of primitive operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunderfx.executors.triton.sizes import Size, product, shape_of, size_of, strides_of
from thunderfx.executors.triton.source import COMPUTE

Node = torch.fx.Node
#: Reductions, and how each combines values.
REDUCTIONS = {
    "sum": "sum",
    "mean": "sum",
    "amax": "max",
    "amin": "min",
    "argmax": "min",
    "argmin": "min",
    "any": "max",
    "all": "min",
}


class Unsupported(Exception):
    """The region holds something that no kernel is generated for; the text says what."""


def args_of(node: Node) -> Any:
    """Arguments, untyped: what stands where is the operator's affair."""
    return node.args


def argument(node: Node, position: int, name: str, default: Any = None) -> Any:
    """An argument that may be given by position or by name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def short_name(node: Node) -> str:
    """``"add"`` for ``aten.add.Tensor``."""
    return str(node.target).split(".")[1] if node.op == "call_function" and "." in str(node.target) else ""


def value_of(node: Node) -> torch.Tensor:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise Unsupported(f"{node} is no tensor")
    return value


def shape(node: Node) -> tuple[Size, ...]:
    return shape_of(value_of(node))


def strides(node: Node) -> tuple[Size, ...]:
    return strides_of(value_of(node))


def numel(node: Node) -> Size:
    return product(shape(node))


def dtype(node: Node) -> str:
    """torch's name. Raises ``Unsupported`` for one that Triton does not compute."""
    name = str(value_of(node).dtype).removeprefix("torch.")
    if name not in COMPUTE:
        raise Unsupported(f"Triton does not compute {name}")
    return name


def size_argument(value: Any) -> Size:
    """An integer argument: a number, or a node whose value is a symbolic size."""
    if isinstance(value, Node):
        value = value.meta.get("val")
    if isinstance(value, (int, torch.SymInt)):
        return size_of(value)
    raise Unsupported(f"the argument {value!r}")


def is_reduction(node: Node) -> bool:
    return short_name(node) in REDUCTIONS


def reduced_dims(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kept and reduced dimensions of a reduction's operand."""
    rank = value_of(args_of(node)[0]).dim()
    dims = argument(node, 1, "dim")
    if dims is None or dims == []:
        gone = set(range(rank))
    else:
        gone = {dim % max(rank, 1) for dim in (dims if isinstance(dims, Sequence) else [dims])}
    return tuple(d for d in range(rank) if d not in gone), tuple(sorted(gone & set(range(rank))))


def split_of(node: Node) -> tuple[Size, Size]:
    """Rows and columns of a reduction."""
    sizes = shape(args_of(node)[0])
    kept, gone = reduced_dims(node)
    return product(sizes[d] for d in kept), product(sizes[d] for d in gone)
