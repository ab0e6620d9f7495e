"""Traces of a run for reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL
from thunderfx.trace.printer import Notes, one_line, print_trace

from thunderfx_cli.render.figures import format_count
from thunderfx_cli.store.schema import SubgraphIndex, TraceIndex

#: Inputs of a subgraph that its heading names: parameters come first and are many.
MAX_INPUTS = 8


def heading(graph: SubgraphIndex, index: TraceIndex) -> Iterator[str]:
    """What a reader needs to know about a trace before its first line."""
    where = f", {one_line(graph.code)}" if graph.code else ""
    lines = format_count(index.lines, "line")
    yield f"subgraph {graph.index} {one_line(index.direction)}, stage {one_line(index.stage)}, {lines}{where}"
    if graph.inputs and index.direction == "forward":
        more = f", and {len(graph.inputs) - MAX_INPUTS} more" if len(graph.inputs) > MAX_INPUTS else ""
        yield f"inputs: {', '.join(map(one_line, graph.inputs[:MAX_INPUTS]))}{more}"
    if graph.replaces is not None:
        reason = f": {one_line(graph.reason)}" if graph.reason else ""
        yield f"recompiled: replaces subgraph {graph.replaces}{reason}"
    for fallback in graph.fallbacks:
        if fallback.where in (index.direction, "graph"):
            yield f"fallback after {one_line(fallback.stage)}: {one_line(fallback.reason)}"
    if index.direction == "backward" and graph.backward_status not in ("", "ran"):
        yield f"backward: {one_line(graph.backward_status)}"


def body(trace: TraceCtx, *, why: bool, notes: Notes | None = None) -> str:
    """The commented program, and below it what ran its lines."""
    return f"{print_trace(trace, comments=True, why=why, notes=notes)}# run by {ran_by(trace)}\n"


def ran_by(trace: TraceCtx) -> str:
    """``"inductor 92 lines in 1 fusion, torch 3 lines"``: members of fusions count as lines, ``del`` does not."""
    lines: Counter[str] = Counter()
    fusions: Counter[str] = Counter()
    for line in trace.bound_symbols:
        if line.symbol != DEL:
            lines[line.executor] += max(1, len(line.subsymbols))
            fusions[line.executor] += line.has_tag("fused")
    parts = []
    for name, count in lines.items():
        inside = f" in {format_count(fusions[name], 'fusion')}" if fusions[name] else ""
        parts.append(one_line(f"{name} {format_count(count, 'line')}{inside}"))
    return ", ".join(parts) or "nothing: it has no lines"


def sources(trace: TraceCtx) -> str:
    """The code behind each fusion, line by line harmless on a terminal; ``""`` where there is none."""
    out = []
    for fusion in trace.fusions:
        figures = ", ".join(f"{value} {name}" for name, value in fusion.statistics.items())
        out.append(
            f"# {one_line(fusion.name)}, {one_line(fusion.executor)}{one_line(f': {figures}' if figures else '')}"
        )
        out += [one_line(text) for text in fusion.source.split("\n")]
    return "\n".join(out) + "\n" if out else ""


def missing(graph: SubgraphIndex, direction: str, stage: str) -> str:
    """One line that says why a subgraph has no trace of a direction to show."""
    stages = [index.stage for index in graph.traces if index.direction == direction]
    fallen = next((item.reason for item in graph.fallbacks if item.where in (direction, "graph")), "")
    if stages:
        reason = f"no trace after stage {stage}; there are {', '.join(stages)}"
    elif fallen:
        reason = f"fell back: {fallen}"
    elif direction == "backward" and graph.backward_status not in ("", "ran"):
        reason = graph.backward_status
    else:
        reason = "no trace was stored"
    return one_line(f"subgraph {graph.index} {direction}: {reason}")
