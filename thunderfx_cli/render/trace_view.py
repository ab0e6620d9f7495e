"""Traces of a run for reading."""

from __future__ import annotations

from collections.abc import Iterator

from thunderfx.trace import TraceCtx
from thunderfx.trace.printer import one_line

from thunderfx_cli.store.schema import SubgraphIndex, TraceIndex


def heading(graph: SubgraphIndex, index: TraceIndex) -> Iterator[str]:
    """What a reader needs to know about a trace before its first line."""
    where = f", {one_line(graph.code)}" if graph.code else ""
    yield f"subgraph {graph.index} {index.direction}, stage {one_line(index.stage)}, {index.lines} lines{where}"
    if graph.replaces is not None:
        reason = f": {one_line(graph.reason)}" if graph.reason else ""
        yield f"recompiled: replaces subgraph {graph.replaces}{reason}"
    for fallback in graph.fallbacks:
        if fallback.where in (index.direction, "graph"):
            yield f"fallback after {one_line(fallback.stage)}: {one_line(fallback.reason)}"
    if index.direction == "backward" and graph.backward_status not in ("", "ran"):
        yield f"backward: {one_line(graph.backward_status)}"


def trace_text(trace: TraceCtx) -> str:
    """The trace with types and origins."""
    return trace.python(comments=True)
