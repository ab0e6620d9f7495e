"""Reductions over the columns of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunderfx.executors.triton.index import Index, unflatten
from thunderfx.executors.triton.nodes import (
    REDUCTIONS,
    Node,
    Unsupported,
    args_of,
    dtype,
    reduced_dims,
    shape,
    short_name,
    split_of,
)
from thunderfx.executors.triton.plan import Reduce
from thunderfx.executors.triton.source import triton_type

if TYPE_CHECKING:
    from thunderfx.executors.triton.builder import Builder

_MOST = {"int64": "9223372036854775807", "int32": "2147483647", "int16": "32767", "int8": "127", "uint8": "255"}
_LEAST = {name: f"(-{most} - 1)" for name, most in _MOST.items()} | {"uint8": "0"}


def inner_coordinates(builder: Builder, node: Node, coordinates: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """Coordinates in the operand, at the row and over the columns of the kernel; ``None`` where the reduction is not
    one over its columns, or not asked for at its row."""
    if split_of(node) != builder.key:
        return None
    inner = whole_coordinates(builder, node)
    kept, gone = reduced_dims(node)
    here = tuple(coordinates[d] for d in kept) if len(coordinates) == len(inner) and gone else coordinates
    return inner if here == tuple(inner[d] for d in kept) else None


def whole_coordinates(builder: Builder, node: Node) -> tuple[Index, ...]:
    """Coordinates in the operand of a reduction over the columns of the kernel."""
    sizes = shape(args_of(node)[0])
    kept, gone = reduced_dims(node)
    rows = unflatten(builder.row, [sizes[d] for d in kept])
    columns = unflatten(builder.column, [sizes[d] for d in gone])
    inner = [Index()] * len(sizes)
    for d, at in (*zip(kept, rows, strict=True), *zip(gone, columns, strict=True)):
        inner[d] = at
    return tuple(inner)


def reduction(builder: Builder, node: Node, inner: tuple[Index, ...]) -> str:
    key = ("reduced", node)
    found = builder.memo.get(key)
    if found is None:
        found = builder.memo[key] = _reduction(builder, node, short_name(node), inner)
    return found


def _reduction(builder: Builder, node: Node, name: str, inner: tuple[Index, ...]) -> str:
    operand = args_of(node)[0]
    if name in ("argmax", "argmin"):
        return _position(builder, node, name, inner)
    if name in ("any", "all"):
        truth = builder.cast(builder.evaluate(operand, inner), dtype(operand), "bool")
        number = builder.cast(truth, "bool", "int32")
        return builder.cast(_over_columns(builder, node, REDUCTIONS[name], number, "int32"), "int32", "bool")
    wanted = dtype(node)
    value = builder.cast(builder.evaluate(operand, inner), dtype(operand), wanted)
    total = _over_columns(builder, node, REDUCTIONS[name], value, wanted)
    if name != "mean":
        return total
    count = builder.cast(builder.size_value(builder.key[1]), "int32", wanted)
    return builder.compute(("mean", node), f"{total} / {count}")


def _over_columns(builder: Builder, key: object, kind: str, value: str, of: str) -> str:
    if not builder.kernel.has_columns:
        return value
    if of == "bool":
        raise Unsupported("a reduction of bool")
    is_float = of.startswith(("float", "bfloat"))
    if kind == "sum":
        neutral = "0"
    elif is_float:
        neutral = f"float('{'-inf' if kind == 'max' else 'inf'}')"
    else:
        neutral = (_LEAST if kind == "max" else _MOST)[of]
    var = builder.memo[("over", key, kind)] = builder.fresh(frozenset({"m"}))
    builder.kernel.steps.append(Reduce(var, kind, value, neutral, triton_type(of)))
    return var


def _position(builder: Builder, node: Node, name: str, inner: tuple[Index, ...]) -> str:
    """The first column that holds the extreme; as for torch, nan is more than anything and less than anything."""
    operand = args_of(node)[0]
    of = dtype(operand)
    if of == "bool":
        raise Unsupported(f"{node.target} of bool")
    value = builder.evaluate(operand, inner)
    extreme = _over_columns(builder, (node, "extreme"), "max" if name == "argmax" else "min", value, of)
    is_there = builder.compute(("there", node), f"({value} == {extreme}) | ({value} != {value})")
    column = builder.cast(builder.index_value(builder.column), "int32", "int64")
    position = builder.compute(("position", node), f"tl.where({is_there}, {column}, {_MOST['int64']})")
    return _over_columns(builder, (node, "first"), "min", position, "int64")
