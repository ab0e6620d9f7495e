"""Lines of stored traces together with what they cost, and where their cost belongs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thunderfx.profiling.costs import Ceilings, LineCost, TraceCosts
from thunderfx.profiling.roofline import Limit, dtype_of, limit, member_times, types_of
from thunderfx.trace import BoundSymbol, Origin, TraceCtx, ValueType
from thunderfx.trace.bound_symbol import DEL


class CostedLine(msgspec.Struct, frozen=True):
    """Line ``number`` of one trace. A ``del`` line has the origin of the line before, which used its names last."""

    subgraph: int
    direction: str
    number: int
    line: BoundSymbol
    origin: Origin | None
    cost: LineCost
    limit: Limit
    dtype: str = ""
    estimated: bool = False  #: a member of a fusion: its time is a part of the fusion's, in proportion to its work


def costed_lines(
    trace: TraceCtx, costs: TraceCosts, ceilings: Ceilings | None, *, subgraph: int = 0, direction: str = "forward"
) -> list[CostedLine]:
    """The lines of ``trace`` in order; ``costs`` are its own."""
    types = types_of(trace)
    found: list[CostedLine] = []
    origin: Origin | None = None
    for number, (line, cost) in enumerate(zip(trace.bound_symbols, costs.lines, strict=True)):
        if line.symbol == DEL:
            at, bound, dtype = origin, Limit(), ""
        else:
            at = origin = trace.origin_of(line)
            dtype = _arithmetic(line, types)
            bound = limit(cost, dtype, ceilings)
        found.append(CostedLine(subgraph, direction, number, line, at, cost, bound, dtype))
    return found


def opened(lines: list[CostedLine], trace: TraceCtx, ceilings: Ceilings | None) -> Iterator[CostedLine]:
    """``lines`` of ``trace`` with each fusion replaced by its members, among which its cost is divided by estimate.

    Memory stays with the first member; a fusion's bytes are divided as its time is.
    """
    types = types_of(trace)
    for item in lines:
        if not item.cost.members or len(item.cost.members) != len(item.line.subsymbols):
            yield item
            continue
        for position, part in enumerate(member_costs(item, types, ceilings)):
            member = item.line.subsymbols[position]
            yield msgspec.structs.replace(
                item,
                line=msgspec.structs.replace(member, executor=item.line.executor),
                origin=trace.origin_of(member),
                cost=part,
                limit=Limit(bound=item.limit.bound),
                dtype=dtype_of(member, types),
                estimated=True,
            )


def member_costs(item: CostedLine, types: dict[str, ValueType], ceilings: Ceilings | None) -> list[LineCost]:
    """A fusion's cost divided among its members, in proportion to their work; memory stays with the first."""
    whole = item.cost
    dtypes = [dtype_of(member, types) for member in item.line.subsymbols]
    times = member_times(whole, dtypes, ceilings)
    parts = []
    for position, (member, time_ms) in enumerate(zip(whole.members, times, strict=True)):
        share = time_ms / whole.time_ms if time_ms and whole.time_ms else 0.0
        parts.append(
            LineCost(
                time_ms=time_ms,
                flops=member.flops,
                estimated_flops=member.estimated_flops,
                moved_bytes=None if whole.moved_bytes is None else int(whole.moved_bytes * share),
                allocated_bytes=0 if position else whole.allocated_bytes,
                freed_bytes=0 if position else whole.freed_bytes,
                live_bytes=whole.live_bytes,
            )
        )
    return parts


def _arithmetic(line: BoundSymbol, types: dict[str, ValueType]) -> str:
    """dtype of a line's arithmetic; of a fusion that of its first member that has one."""
    return next((found for part in line.subsymbols or (line,) if (found := dtype_of(part, types))), "")
