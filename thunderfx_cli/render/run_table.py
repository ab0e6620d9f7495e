"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from thunderfx.trace.printer import one_line

from thunderfx_cli.render.columns import GAP, aligned, cell_width, shortened
from thunderfx_cli.render.figures import format_ms
from thunderfx_cli.store.schema import Run

_COLUMNS = ("id", "name", "when", "target", "device", "status", "step")
_NAME, _WHEN, _TARGET, _STEP = (_COLUMNS.index(name) for name in ("name", "when", "target", "step"))
#: Text of a run is not shown beyond this.
_MAX_CELL = 200
#: A name or target is not shortened below this.
_MIN_CELL = 12


def step_time_ms(run: Run) -> float | None:
    """Median step, or the median forward of a run without steps of its own."""
    for phase in ("step", "forward", "first_call"):
        timing = run.timings.get(phase)
        if timing is not None and timing.samples_ms:
            return median(timing.samples_ms)
    return None


def run_row(run: Run) -> dict[str, Any]:
    """What the list tells about a run, for ``--json``."""
    return {
        "id": run.id,
        "name": run.name,
        "created": run.created,
        "target": run.target,
        "device": run.environment.device,
        "status": run.status,
        "step_ms": step_time_ms(run),
    }


def run_lines(runs: Sequence[Run], *, width: int | None = None) -> list[str]:
    """A heading and a line for each run; within ``width`` columns, the time (which the id has) and the beginning of
    long targets and names are left out."""
    rows = [_COLUMNS, *map(_cells, runs)]
    if width is not None and _width(rows) > width:
        rows = [(*row[:_WHEN], "", *row[_WHEN + 1 :]) for row in rows]
        for column in (_TARGET, _NAME):
            room = max(_MIN_CELL, max(cell_width(row[column]) for row in rows) - (_width(rows) - width))
            rows = [(*row[:column], shortened(row[column], room), *row[column + 1 :]) for row in rows]
    shown = [number for number in range(len(_COLUMNS)) if any(row[number] for row in rows)]
    rows = [tuple(row[number] for number in shown) for row in rows]
    return aligned(rows, right=frozenset({shown.index(_STEP)}))


def _width(rows: Sequence[Sequence[str]]) -> int:
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    return sum(width + len(GAP) for width in widths if width) - len(GAP)


def _cells(run: Run) -> tuple[str, ...]:
    step = step_time_ms(run)
    texts = (run.id, run.name, run.created[:19].replace("T", " "), run.target, run.environment.device, run.status)
    return (*(one_line(text[:_MAX_CELL]) for text in texts), "-" if step is None else format_ms(step))
