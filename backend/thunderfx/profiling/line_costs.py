"""What the lines of a subgraph cost: times as measured, work and memory as the traces tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from thunderfx.profiling.costs import LineCost, TraceCosts
from thunderfx.profiling.line_timer import Timed
from thunderfx.profiling.roofline import types_of
from thunderfx.profiling.sizes import Sizes
from thunderfx.profiling.storage import Change, Tracked, saved, track
from thunderfx.profiling.work import Work, work_of
from thunderfx.trace import TraceCtx


def subgraph_costs(
    traces: Mapping[str, TraceCtx],
    timed: Mapping[str, Timed],
    *,
    split: TraceCtx | None = None,
    mark_ms: float = 0.0,
    clock: str = "",
    note: str = "",
) -> dict[str, TraceCosts]:
    """Costs by direction of one subgraph's execution traces.

    ``timed`` holds what was measured, where anything was, and ``note`` why nothing was; ``split`` is the forward trace
    as it was split from the backward, whose names the backward's inputs have.
    """
    known: dict[str, int] = {}
    for found in timed.values():
        known |= found.sizes
    sizes = Sizes(known)
    costs: dict[str, TraceCosts] = {}
    forward: Tracked | None = None
    for direction in ("forward", "backward"):
        trace = traces.get(direction)
        if trace is None:
            continue
        given = {}
        if direction == "backward" and forward is not None and split is not None:
            given = saved(forward, split, traces["forward"])
        tracked = track(trace, sizes, given)
        forward = tracked if direction == "forward" else forward
        costs[direction] = _costs(trace, tracked.changes, sizes, timed.get(direction), mark_ms, clock, note)
    return costs


def _costs(
    trace: TraceCtx,
    changes: Sequence[Change],
    sizes: Sizes,
    timed: Timed | None,
    mark_ms: float,
    clock: str,
    note: str,
) -> TraceCosts:
    types = types_of(trace)
    samples = timed.lines_ms if timed is not None else [[] for _ in trace.bound_symbols]
    lines = tuple(
        _line(work_of(line, types, sizes), change, times)
        for line, change, times in zip(trace.bound_symbols, changes, samples, strict=True)
    )
    if timed is None or not timed.calls:
        return TraceCosts(lines, sizes=sizes.known, note=note or "no measured step called it")
    return TraceCosts(
        lines,
        steps=len(timed.calls),
        calls=median(timed.calls),
        sum_ms=median(map(sum, zip(*timed.lines_ms, strict=True))),
        whole_ms=median(timed.whole_ms) if timed.whole_ms else None,
        mark_ms=mark_ms,
        clock=clock,
        sizes=sizes.known,
    )


def _line(work: Work, change: Change, times_ms: Sequence[float]) -> LineCost:
    middle = median(times_ms) if times_ms else None
    return LineCost(
        time_ms=middle,
        mad_ms=0.0 if middle is None else median(abs(time_ms - middle) for time_ms in times_ms),
        flops=work.flops,
        estimated_flops=work.estimated_flops,
        moved_bytes=work.moved_bytes,
        allocated_bytes=change.allocated,
        freed_bytes=change.freed,
        live_bytes=change.live,
        members=tuple(
            LineCost(flops=member.flops, estimated_flops=member.estimated_flops, moved_bytes=member.moved_bytes)
            for member in work.members
        ),
    )
