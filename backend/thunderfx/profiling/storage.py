"""Memory that the lines of a trace make and free, from types, views and ``del`` lines alone.

A block is the storage behind one or more names. Views and in-place operators give another name to a block; any other
tensor result is a block of its own. A block is freed when the last of its names is deleted. Blocks that a program did
not make are not its own and count nothing, except what the forward saved for this backward alone.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from thunderfx.profiling.sizes import Sizes
from thunderfx.trace import BoundSymbol, Ref, TraceCtx
from thunderfx.trace.bound_symbol import DEL, names_in

#: Results that share their operand's memory although their schema does not say so.
_HIDDEN_VIEWS = frozenset({"aten._unsafe_view.default", "operator.getitem"})


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    nbytes: int
    owned: bool  #: made by a program, so that it is freed with its last name


class Change(msgspec.Struct, frozen=True):
    """What one line does to memory, in bytes; ``live`` is what is held after it."""

    allocated: int
    freed: int
    live: int


@dataclasses.dataclass
class Tracked:
    changes: list[Change]
    blocks: dict[str, tuple[Block, ...]]  #: of every name, deleted ones too


def track(trace: TraceCtx, sizes: Sizes, given: Mapping[str, tuple[Block, ...]] | None = None) -> Tracked:
    """Follow the blocks of ``trace``; ``given`` are those of inputs that another program made (:func:`saved`)."""
    blocks: dict[str, tuple[Block, ...]] = {}
    for var in trace.inputs:
        blocks[var.name] = (given or {}).get(var.name, (Block(sizes.nbytes(var.type) or 0, False),))
    for constant in trace.constants:
        blocks[constant.name] = (Block(0, False),)
    holders: Counter[Block] = Counter()
    alive: dict[str, tuple[Block, ...]] = {}

    def hold(name: str) -> int:
        """Bytes that became live with this name."""
        alive[name] = blocks[name]
        new = sum(block.nbytes for block in alive[name] if block.owned and not holders[block])
        holders.update(alive[name])
        return new

    live = sum([hold(var.name) for var in trace.inputs])
    changes = []
    for line in trace.bound_symbols:
        allocated = freed = 0
        if line.symbol == DEL:
            for name in line.uses():
                for block in alive.pop(name, ()):
                    holders[block] -= 1
                    if not holders[block] and block.owned:
                        freed += block.nbytes
        else:
            for member in line.subsymbols or (line,):
                blocks |= dict(_results(member, blocks, sizes))
            for var in line.defines():
                blocks.setdefault(var.name, (Block(sizes.nbytes(var.type) or 0, True),))
                allocated += hold(var.name)
        live += allocated - freed
        changes.append(Change(allocated, freed, live))
    return Tracked(changes, blocks)


def _results(
    line: BoundSymbol, blocks: Mapping[str, tuple[Block, ...]], sizes: Sizes
) -> Iterator[tuple[str, tuple[Block, ...]]]:
    shared = shared_operand(line)
    for var in line.defines():
        if shared is not None and shared in blocks:
            yield var.name, blocks[shared]
        else:
            yield var.name, (Block(sizes.nbytes(var.type) or 0, True),)


def shared_operand(line: BoundSymbol) -> str | None:
    """Name of the operand whose memory the line's results are in, ``None`` where they have their own."""
    if line.has_tag("mutation"):
        operator, _, overload = line.symbol.removeprefix("aten.").partition(".")
        into = dict(line.kwargs).get(overload) or dict(line.kwargs).get("out")
        if isinstance(into, Ref):
            return into.name
        if not operator.endswith("_"):
            return None
    elif not line.has_tag("view") and line.symbol not in _HIDDEN_VIEWS:
        return None
    return next(line.uses(), None)


def saved(forward: Tracked, made: TraceCtx, returned: TraceCtx) -> dict[str, tuple[Block, ...]]:
    """Blocks by the names under which a backward program gets them.

    ``made`` is the forward trace as it was split off, whose names the backward has; ``returned`` the one that runs,
    which returns the same values at the same places.
    """
    before, after = _returned(made), _returned(returned)
    pairs = zip(before, after, strict=False) if len(before) == len(after) else ()
    return {old: forward.blocks[new] for old, new in pairs if old and new in forward.blocks}


def _returned(trace: TraceCtx) -> Sequence[str]:
    items = getattr(trace.outputs, "items", ())
    return [next(names_in(item), "") for item in items]
