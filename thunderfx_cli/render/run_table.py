"""The list of runs."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.table import Table
from rich.text import Text
from thunderfx.trace.printer import one_line

from thunderfx_cli.render.figures import format_ms
from thunderfx_cli.store.schema import Run


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


def run_table(runs: list[Run]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    for column in ("id", "name", "when", "target", "device", "status"):
        table.add_column(column, no_wrap=True, overflow="ignore")
    table.add_column("step", justify="right", no_wrap=True)
    for run in runs:
        step = step_time_ms(run)
        cells = (run.id, run.name, run.created[:19].replace("T", " "), run.target, run.environment.device, run.status)
        table.add_row(*(Text(one_line(cell)) for cell in cells), "-" if step is None else format_ms(step))
    return table
