"""Views as index arithmetic: from coordinates of the result to the operand and its coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunderfx.executors.triton.index import Index, flatten, unflatten
from thunderfx.executors.triton.nodes import Node, Unsupported, args_of, shape, short_name, size_argument
from thunderfx.executors.triton.sizes import Size, never_negative, plain

Coordinates = tuple[Index, ...]
View = Callable[[Node, Coordinates], tuple[Node, Coordinates]]


def broadcast(coordinates: Coordinates, sizes: tuple[Size, ...]) -> Coordinates:
    """Coordinates in an operand of ``sizes``, which broadcasts to what ``coordinates`` are in."""
    inner = coordinates[len(coordinates) - len(sizes) :]
    return tuple(Index() if isinstance(size, int) and size == 1 else at for size, at in zip(sizes, inner, strict=True))


def _reshape(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source: Any = args_of(node)[0]
    return source, unflatten(flatten(coordinates, shape(node)), shape(source))


def _permute(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source, dims = args_of(node)
    out = [Index()] * len(coordinates)
    for at, dim in zip(coordinates, dims, strict=True):
        out[int(dim) % len(coordinates)] = at
    return source, tuple(out)


def _transpose(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source, *given = args_of(node)
    rank = len(coordinates)
    a, b = (int(dim) % rank for dim in (given or [0, rank - 1])) if rank else (0, 0)
    out = list(coordinates)
    if rank > 1:
        out[a], out[b] = out[b], out[a]
    return source, tuple(out)


def _expand(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source: Any = args_of(node)[0]
    return source, broadcast(coordinates, shape(source))


def _flip(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source, dims = args_of(node)
    out, sizes = list(coordinates), shape(source)
    for dim in dims:
        out[dim] = out[dim] * -1 + plain(sizes[dim] - 1)
    return source, tuple(out)


def _repeat(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source: Any = args_of(node)[0]
    sizes = shape(source)
    inner = coordinates[len(coordinates) - len(sizes) :]
    return source, tuple(at.divmod(size)[1] for at, size in zip(inner, sizes, strict=True))


def _slice(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source, *given = args_of(node)
    dim, first, _, step = slice_bounds(given, shape(source))
    out = list(coordinates)
    out[dim] = coordinates[dim] * step + first
    return source, tuple(out)


def slice_bounds(given: Any, sizes: tuple[Size, ...]) -> tuple[int, Size, Size, int]:
    """Dimension, start, end and step of a slice, from its arguments after the tensors."""
    rest: tuple[Any, ...] = (0, None, None, 1)[len(given) :]
    dim, start, end, step = (*tuple(given), *rest)
    size = sizes[dim]

    def within(position: Any, default: Size) -> Size:
        if position is None or (isinstance(position, int) and position >= 2**62):
            return default
        position = size_argument(position)
        if isinstance(position, int) and position < 0:
            position = plain(size + position)
        if isinstance(position, int) and isinstance(size, int):
            return max(0, min(position, size))
        if never_negative(position) and never_negative(plain(size - position)):
            return position
        if never_negative(plain(position - size)):
            return size
        raise Unsupported("a slice whose bounds are compared with a symbolic size")

    return int(dim) % len(sizes), within(start, 0), within(end, size), int(step)


def _select(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    source, dim, given = args_of(node)
    sizes = shape(source)
    dim = int(dim) % len(sizes)
    position = size_argument(given)
    if isinstance(position, int) and position < 0:
        position = plain(sizes[dim] + position)
    return source, (*coordinates[:dim], Index() + position, *coordinates[dim:])


def taken(node: Node, coordinates: Coordinates) -> tuple[Node, Coordinates]:
    """One of the pieces of a split tensor."""
    pieces, number = args_of(node)
    name = short_name(pieces)
    if name not in ("split", "split_with_sizes", "unbind"):
        raise Unsupported(str(pieces.target))
    source, *given = args_of(pieces)
    sizes = shape(source)
    if name == "unbind":
        dim = int(given[0] if given else 0) % len(sizes)
        return source, (*coordinates[:dim], Index() + number, *coordinates[dim:])
    dim = int(given[1] if len(given) > 1 else 0) % len(sizes)
    if name == "split":
        first = plain(size_argument(given[0]) * number)
    else:
        first = plain(sum(size_argument(size) for size in given[0][:number]))
    return source, (*coordinates[:dim], coordinates[dim] + first, *coordinates[dim + 1 :])


#: Views that are always of their operand's memory.
ALIASES = frozenset(
    {"detach", "alias", "view", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "select"}
)
VIEWS: dict[str, View] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"), _reshape),
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "flip": _flip,
    "rev": _flip,
    "repeat": _repeat,
}
