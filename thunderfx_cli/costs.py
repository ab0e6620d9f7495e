"""Lines of a stored run with what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from thunderfx.profiling.costed import CostedLine, costed_lines, opened
from thunderfx.profiling.costs import TraceCosts
from thunderfx.profiling.roofline import work
from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL
from thunderfx.trace.printer import print_line

from thunderfx_cli.errors import RunDataError, UsageError
from thunderfx_cli.store import StoredRun
from thunderfx_cli.store.schema import SubgraphIndex, TraceIndex

SORTS = ("time", "memory", "flops")


class TraceLines(msgspec.Struct, frozen=True):
    """One execution trace with its costs and, in order, its lines."""

    graph: SubgraphIndex
    index: TraceIndex
    trace: TraceCtx
    costs: TraceCosts
    lines: list[CostedLine]

    def parts(self, stored: StoredRun) -> list[CostedLine]:
        """The lines with fusions taken apart."""
        return list(opened(self.lines, self.trace, stored.run.ceilings))


def lines_of(stored: StoredRun, graph: SubgraphIndex, index: TraceIndex, trace: TraceCtx) -> TraceLines | None:
    """The lines of one trace, which is already loaded; ``None`` where the run holds no costs of it."""
    costs = stored.load_costs(index, trace)
    if costs is None:
        return None
    lines = costed_lines(trace, costs, stored.run.ceilings, subgraph=graph.index, direction=index.direction)
    return TraceLines(graph, index, trace, costs, lines)


def all_lines(stored: StoredRun, direction: str | None = None, subgraph: int | None = None) -> list[TraceLines]:
    """Every execution trace that has costs. Raises :class:`RunDataError` where none has."""
    found = [
        lines_of(stored, graph, index, stored.load_trace(index)) for graph, index in stored.traces(direction, subgraph)
    ]
    kept = [lines for lines in found if lines is not None]
    if not kept:
        raise RunDataError(
            "this run holds no costs of lines",
            hint="It was stored by an earlier version, or nothing of it was compiled: run it again.",
        )
    return kept


def chosen(
    traces: Sequence[TraceLines], *, sort: str = "", top: int | None = None, module: str = "", grep: str = ""
) -> list[CostedLine]:
    """Lines of all ``traces``, the most expensive first where ``sort`` says by what.

    Raises :class:`UsageError` for an unknown ``sort``, and :class:`RunDataError` for ``"time"`` without times.
    """
    if sort and sort not in SORTS:
        raise UsageError(f"--sort {sort}: one of {', '.join(SORTS)}")
    if sort == "time" and all(found.costs.lines_ms is None for found in traces):
        raise RunDataError(f"the lines of this run have no times: {traces[0].costs.note}")
    lines = [item for found in traces for item in found.lines if _matches(item, module, grep)]
    if sort:
        keys = {
            "time": lambda item: item.cost.time_ms or 0.0,
            "memory": lambda item: item.cost.allocated_bytes,
            "flops": lambda item: work(item.cost),
        }
        lines.sort(key=keys[sort], reverse=True)
    return lines[:top]


def _matches(item: CostedLine, module: str, grep: str) -> bool:
    path = item.origin.module if item.origin is not None else ""
    if module and path != module and not path.startswith(module.rstrip(".") + "."):
        return False
    return not grep or any(grep in text for text in _texts(item))


def _texts(item: CostedLine) -> Iterator[str]:
    yield print_line(item.line)
    yield from (str(var.type) for var in item.line.defines())
    yield from (print_line(member) for member in item.line.subsymbols)
    if item.origin is not None and item.line.symbol != DEL:
        yield str(item.origin)
