"""Operators of which the coordinates decide what is read: concatenation, padding, writing into a part, indexing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thunderfx.executors.triton import expressions
from thunderfx.executors.triton.index import Index, flatten
from thunderfx.executors.triton.nodes import (
    Node,
    Unsupported,
    args_of,
    argument,
    dtype,
    shape,
    size_argument,
    value_of,
)
from thunderfx.executors.triton.sizes import Size, plain, text_of
from thunderfx.executors.triton.views import broadcast, slice_bounds

if TYPE_CHECKING:
    from thunderfx.executors.triton.builder import Builder

Coordinates = tuple[Index, ...]


def _within(builder: Builder, at: Index, first: Size, end: Size) -> str:
    """Whether a coordinate lies in a range."""
    value = builder.index_value(at)
    text = f"({value} >= {text_of(first)}) & ({value} < {text_of(end)})"
    return builder.compute(("within", at, first, end), text, (first, end))


def _read(builder: Builder, source: Any, inner: Coordinates, test: str, wanted: str) -> tuple[str, str]:
    """``source`` where ``test`` holds and where it is asked for, and the whole condition."""
    outer = builder.condition
    builder.condition = inside = builder.under(test)
    value = builder.operand(source, inner, wanted)
    builder.condition = outer
    return value, inside


def _concatenation(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    """Each part is read where the coordinate lies in it; elsewhere it reads nothing."""
    parts = args_of(node)[0]
    at = int(argument(node, 1, "dim", 0)) % len(coordinates)
    start: Size = 0
    out = ""
    for part in parts:
        size = shape(part)[at]
        if isinstance(size, int) and not size:
            continue
        test = _within(builder, coordinates[at], start, plain(start + size))
        inner = (*coordinates[:at], coordinates[at] + plain(-start), *coordinates[at + 1 :])
        value, inside = _read(builder, part, inner, test, dtype(node))
        out = f"tl.where({inside}, {value}, {out})" if out else value
        start = plain(start + size)
    return builder.compute((node, coordinates, builder.condition), out)


def _chosen(builder: Builder, node: Node, source: Any, inner: Coordinates, test: str, base: str) -> str:
    """``source`` where ``test`` holds, elsewhere ``base``."""
    value, inside = _read(builder, source, inner, test, dtype(node))
    return builder.compute((node, inner, "chosen", builder.condition), f"tl.where({inside}, {value}, {base})")


def _padded(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    source, pads = args_of(node)[:2]
    sizes, inner, tests = shape(source), list(coordinates), []
    for number in range(len(pads) // 2):
        dim = len(sizes) - 1 - number
        before = size_argument(pads[2 * number])
        tests.append(_within(builder, coordinates[dim], before, plain(before + sizes[dim])))
        inner[dim] = coordinates[dim] + plain(-before)
    base = expressions.scalar(builder, argument(node, 2, "value", 0), dtype(node))
    test = builder.compute(("all", *tests), " & ".join(tests)) if tests else "True"
    return _chosen(builder, node, source, tuple(inner), test, base)


def _select_scatter(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    into, source, dim, position = args_of(node)
    sizes = shape(node)
    dim, position = int(dim) % len(sizes), size_argument(position)
    if isinstance(position, int) and position < 0:
        position = plain(sizes[dim] + position)
    base = builder.operand(into, coordinates, dtype(node))
    test = _within(builder, coordinates[dim], position, plain(position + 1))
    return _chosen(builder, node, source, (*coordinates[:dim], *coordinates[dim + 1 :]), test, base)


def _slice_scatter(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    into, source, *given = args_of(node)
    dim, first, end, step = slice_bounds(given, shape(node))
    base = builder.operand(into, coordinates, dtype(node))
    at = coordinates[dim]
    test, moved = _within(builder, at, first, end), at + plain(-first)
    if step > 1:
        past = f"(({at}) - {text_of(first)})"
        hit = builder.compute(("step", at, first, step), f"{past} % {step} == 0", (*at.sizes(), first))
        test = builder.compute(("on", test, hit), f"{test} & {hit}")
        moved = Index.loaded(
            builder.compute(("steps", at, first, step), f"{past} // {step}", (*at.sizes(), first)),
            shape(source)[dim],
            frozenset(at.atoms()),
        )
    return _chosen(builder, node, source, (*coordinates[:dim], moved, *coordinates[dim + 1 :]), test, base)


def _loaded(builder: Builder, index: Any, coordinates: Coordinates, size: Size) -> tuple[Index, str]:
    """A coordinate read from ``index``, and whether it lies within ``size``. Negative ones count from the end."""
    var = builder.operand(index, coordinates, "int64")
    end = text_of(size)
    wrapped = builder.compute(("wrapped", var, size), f"tl.where({var} < 0, {var} + {end}, {var})", (size,))
    is_inside = builder.compute(("inside", wrapped, size), f"({wrapped} >= 0) & ({wrapped} < {end})", (size,))
    return Index.loaded(wrapped, size, builder.kernel.depends[wrapped]), is_inside


def _indexed(builder: Builder, node: Node, source: Any, inner: Coordinates, tests: list[str]) -> str:
    """What lies at coordinates that were read. Beyond the end eager fails; here floating-point numbers become nan."""
    wanted = dtype(node)
    test = builder.compute(("all", *tests), " & ".join(tests))
    value, _ = _read(builder, source, inner, test, wanted)
    if not value_of(node).is_floating_point():
        return value
    return builder.compute((node, inner, "indexed", builder.condition), f"tl.where({test}, {value}, float('nan'))")


def _gather(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    source, dim, index = args_of(node)[:3]
    if not coordinates:
        raise Unsupported("gather from a scalar")
    dim = int(dim) % len(coordinates)
    position, is_inside = _loaded(builder, index, coordinates, shape(source)[dim])
    return _indexed(builder, node, source, (*coordinates[:dim], position, *coordinates[dim + 1 :]), [is_inside])


def _embedding(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    weight, index = args_of(node)[:2]
    position, is_inside = _loaded(builder, index, coordinates[:-1], shape(weight)[0])
    return _indexed(builder, node, weight, (position, coordinates[-1]), [is_inside])


def _index_select(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    source, dim, index = args_of(node)
    dim = int(dim) % max(1, len(coordinates))
    position, is_inside = _loaded(builder, index, (coordinates[dim],), shape(source)[dim])
    return _indexed(builder, node, source, (*coordinates[:dim], position, *coordinates[dim + 1 :]), [is_inside])


def _index(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    """``source[:, i, j]``: indices broadcast, and their dimensions stand where the first index does, or in front where
    indices are apart."""
    source, indices = args_of(node)
    sizes = shape(source)
    given = [d for d, index in enumerate(indices) if index is not None]
    if any(value_of(indices[d]).dtype.is_floating_point or dtype(indices[d]) == "bool" for d in given):
        raise Unsupported("indexing with a mask")
    rank = max(value_of(indices[d]).dim() for d in given)
    first = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    shared = coordinates[first : first + rank]
    rest = iter((*coordinates[:first], *coordinates[first + rank :]))
    inner, tests = [], []
    for d, size in enumerate(sizes):
        if d not in given:
            inner.append(next(rest))
            continue
        position, is_inside = _loaded(builder, indices[d], broadcast(shared, shape(indices[d])), size)
        inner.append(position)
        tests.append(is_inside)
    return _indexed(builder, node, source, tuple(inner), tests)


def _scatter(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    """One value into each line along a dimension: whether it lies at the coordinate tells what is there."""
    into, dim, index, source = args_of(node)[:4]
    sizes, index_sizes = shape(node), shape(index)
    if not coordinates or node.kwargs.get("reduce") is not None:
        raise Unsupported(str(node.target))
    dim = int(dim) % len(sizes)
    if index_sizes[dim] != 1 or any(
        a != b for d, (a, b) in enumerate(zip(sizes, index_sizes, strict=True)) if d != dim
    ):
        raise Unsupported("scatter of more than one value into a line")
    one = (*coordinates[:dim], Index(), *coordinates[dim + 1 :])
    base = builder.operand(into, coordinates, dtype(node))
    wanted = builder.operand(index, one, "int64")
    here = builder.index_value(coordinates[dim])
    test = builder.compute(("hit", wanted, here), f"{wanted} == {here}")
    value = builder.operand(source, one, dtype(node))
    return builder.compute((node, coordinates, builder.condition), f"tl.where({test}, {value}, {base})")


def _uniform(builder: Builder, node: Node, coordinates: Coordinates) -> str:
    """Philox of a seed and the position in the whole tensor, so that whoever asks gets the same number."""
    seed = builder.operand(args_of(node)[0], (), "int64")
    flat = flatten(coordinates, shape(node))
    text = f"tl.rand({seed}, ({flat}) + m * 0)"
    return builder.compute((node, coordinates), text, flat.sizes())


CHOICES: dict[str, Callable[[Builder, Node, Coordinates], str]] = {
    "cat": _concatenation,
    "constant_pad_nd": _padded,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "gather": _gather,
    "embedding": _embedding,
    "index_select": _index_select,
    "index": _index,
    "scatter": _scatter,
    "uniform": _uniform,
}
