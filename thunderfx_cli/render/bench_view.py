"""The table of ``thunderfx bench``: data in, renderables out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from thunderfx.profiling.statistics import significant
from thunderfx.trace.printer import one_line

from thunderfx_cli.render.figures import format_bytes, format_ms
from thunderfx_cli.store.schema import ContenderResult, Run

MISSING = "-"


def render_bench(run: Run) -> Iterator[RenderableType]:
    """One row for each compiler, what fails, what was not timed, and what to type next."""
    yield Text("")
    yield _table(run.contenders)
    yield Text("first call and first backward once each; forward, backward and step: medians of interleaved steps")
    yield Text("step / eager: ratio of medians; beyond noise: rank test at 1 % and at least 3 %", style="dim")
    yield Text("errors: relative, against eager in float64", style="dim")
    for item in run.contenders:
        if item.error:
            yield Text(one_line(f"{item.name} failed: {item.error}"), style="bold red")
        if item.fallbacks:
            yield Text(one_line(f"{item.name}: {item.fallbacks} fallbacks"), style="yellow")
    for warning in run.warnings:
        yield Text(one_line(warning), style="yellow")
    yield Text("")
    yield Text(f"run {one_line(run.id)}" + (f" ({one_line(run.name)})" if run.name else ""), style="bold")
    yield Text("next: thunderfx diff, to compare with another bench")


def _table(contenders: tuple[ContenderResult, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    columns = (
        "",
        "first call",
        "first bwd",
        "forward",
        "backward",
        "step",
        "step / eager",
        "peak",
        "graphs",
        "out err",
        "grad err",
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True, overflow="ignore")
    eager = next((item for item in contenders if item.name == "eager"), None)
    for item in contenders:
        peak = item.memory.get("allocated_backward_peak_bytes") or item.memory.get("allocated_forward_peak_bytes")
        table.add_row(
            Text(one_line(item.name)),
            *(_median(item, phase) for phase in ("first_call", "first_backward", "forward", "backward", "step")),
            _against(item, eager),
            MISSING if peak is None or peak.value is None else format_bytes(peak.value),
            MISSING if item.graphs is None else str(item.graphs),
            _error(item.output_error),
            _error(item.gradient_error),
        )
    return table


def _samples(item: ContenderResult, phase: str) -> tuple[float, ...]:
    timing = item.timings.get(phase)
    return timing.samples_ms if timing is not None else ()


def _median(item: ContenderResult, phase: str) -> str:
    samples = _samples(item, phase)
    return format_ms(statistics.median(samples)) if samples else MISSING


def _against(item: ContenderResult, eager: ContenderResult | None) -> str:
    """Ratio of the steps' medians, with a verdict where the samples allow one."""
    ours, theirs = _samples(item, "step"), _samples(eager, "step") if eager is not None else ()
    if item is eager or not ours or not theirs:
        return MISSING
    try:
        verdict = significant(theirs, ours)
    except ValueError:  # a stored run may hold anything
        return MISSING
    below = statistics.median(theirs)
    return f"{statistics.median(ours) / below:.3f} {verdict}" if below else MISSING


def _error(value: float | None) -> str:
    return MISSING if value is None else f"{value:.1e}"
