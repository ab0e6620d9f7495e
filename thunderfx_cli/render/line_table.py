"""What lines cost, as text: notes for a printed trace, rows of a table, and how their sum compares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from thunderfx.profiling.costed import CostedLine, member_costs
from thunderfx.profiling.costs import Ceilings, LineCost, TraceCosts
from thunderfx.profiling.roofline import types_of
from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL
from thunderfx.trace.printer import Notes, one_line, print_line

from thunderfx_cli.render.figures import format_bytes, format_ms, format_rate
from thunderfx_cli.store.schema import Run

HEADER = "     time  share    cum      memory       live    FLOP/s     B/s  bound    line   "


def notes_of(lines: Sequence[CostedLine], trace: TraceCtx, ceilings: Ceilings | None) -> Notes:
    """What to print behind each line: time, share, share so far, memory, and an estimate for members of fusions."""
    total = sum(item.cost.time_ms or 0.0 for item in lines)
    types = types_of(trace)
    notes: dict[tuple[int, int | None], str] = {}
    so_far = 0.0
    for item in lines:
        so_far += item.cost.time_ms or 0.0
        notes[item.number, None] = ", ".join(_note(item.cost, total, so_far))
        if item.cost.members:
            for position, part in enumerate(member_costs(item, types, ceilings)):
                if part.time_ms is not None:
                    notes[item.number, position] = f"~{format_ms(part.time_ms)}"
    return notes


def _note(cost: LineCost, total_ms: float, so_far_ms: float) -> Iterator[str]:
    if cost.time_ms is not None and total_ms:
        yield f"{format_ms(cost.time_ms)} {cost.time_ms / total_ms:.1%} ({so_far_ms / total_ms:.1%})"
    if cost.allocated_bytes:
        yield f"+{format_bytes(cost.allocated_bytes)}"
    if cost.freed_bytes:
        yield f"-{format_bytes(cost.freed_bytes)}"
    yield f"live {format_bytes(cost.live_bytes)}"


def footer(costs: TraceCosts) -> str:
    """How the lines of one trace compare with its program as a whole."""
    if costs.lines_ms is None:
        return f"no times of lines: {one_line(costs.note)}"
    steps = f"{costs.steps} steps" if costs.steps != 1 else "1 step"
    text = f"lines: {format_ms(costs.lines_ms)}, the sum of their medians over {steps}"
    if costs.sum_ms is not None and costs.whole_ms:
        text += f"; in one step they sum to {format_ms(costs.sum_ms)}, {costs.sum_ms / costs.whole_ms:.0%} of the "
        text += f"{format_ms(costs.whole_ms)} that the program takes without marks"
    return f"{text} ({one_line(costs.clock)}, {costs.mark_ms * 1e6:.0f} ns a mark subtracted)"


def compared(run: Run, direction: str, costs: Sequence[TraceCosts]) -> str:
    """How the lines of all traces of a direction compare with what the timed steps measured; ``""`` without times."""
    timing = run.timings.get(direction)
    times = [found.lines_ms for found in costs if found.lines_ms is not None]
    if timing is None or not timing.samples_ms or not times:
        return ""
    measured = median(timing.samples_ms)
    if not measured:
        return ""
    return (
        f"{direction}: lines {format_ms(sum(times))}, {sum(times) / measured:.0%} of the {format_ms(measured)} that "
        f"the timed steps took (median of {len(timing.samples_ms)})"
    )


def rows(lines: Sequence[CostedLine], total_ms: float, width: int | None) -> Iterator[str]:
    """A header, then one row for each line; with ``width`` the call stands below its figures, cut to fit."""
    yield HEADER + ("  call" if width is None else "")
    so_far = 0.0
    for item in lines:
        so_far += item.cost.time_ms or 0.0
        figures = _figures(item, total_ms, so_far)
        call, origin = one_line(print_line(item.line)), one_line(str(item.origin or ""))
        if width is None:
            yield f"{figures:{len(HEADER)}}  {call}" + (f"  # {origin}" if origin else "")
            continue
        yield figures[:width]
        for text in (call, origin):
            if text:
                yield f"    {text}"[:width]


def _figures(item: CostedLine, total_ms: float, so_far_ms: float) -> str:
    cost, limit = item.cost, item.limit
    time = share = cumulative = "-"
    if cost.time_ms is not None and total_ms:
        time, share, cumulative = (
            format_ms(cost.time_ms),
            f"{cost.time_ms / total_ms:.1%}",
            f"{so_far_ms / total_ms:.0%}",
        )
    net = cost.allocated_bytes - cost.freed_bytes
    memory = f"{'+' if net > 0 else ''}{format_bytes(net)}" if net else "-"
    rate, speed = (format_rate(value) if value else "-" for value in (limit.flops_per_s, limit.bytes_per_s))
    return (
        f"{time:>9} {share:>6} {cumulative:>6} {memory:>11} {format_bytes(cost.live_bytes):>10} "
        f"{rate:>9} {speed:>7}  {limit.bound or '-':7}  {item.subgraph}{item.direction[:1]}:{item.number}"
    )


def row_data(item: CostedLine, total_ms: float) -> dict[str, Any]:
    """One line for ``--json``."""
    cost, limit, origin = item.cost, item.limit, item.origin
    return {
        "subgraph": item.subgraph,
        "direction": item.direction,
        "line": item.number,
        "symbol": item.line.symbol,
        "text": print_line(item.line),
        "executor": "" if item.line.symbol == DEL else item.line.executor,
        "module": origin.module if origin is not None else "",
        "source": f"{origin.file}:{origin.line}" if origin is not None and origin.file else "",
        "time_ms": cost.time_ms,
        "mad_ms": cost.mad_ms,
        "share": cost.time_ms / total_ms if cost.time_ms is not None and total_ms else None,
        "flops": cost.flops,
        "estimated_flops": cost.estimated_flops,
        "moved_bytes": cost.moved_bytes,
        "allocated_bytes": cost.allocated_bytes,
        "freed_bytes": cost.freed_bytes,
        "live_bytes": cost.live_bytes,
        "bound": limit.bound,
        "intensity": limit.intensity,
        "flops_per_s": limit.flops_per_s,
        "bytes_per_s": limit.bytes_per_s,
        "ideal_ms": limit.ideal_ms,
    }
