"""The summary of one run: data in, renderables out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from thunderfx.profiling.statistics import summarise
from thunderfx.trace.printer import one_line

from thunderfx_cli.render.bench_view import render_bench
from thunderfx_cli.render.figures import format_bytes, format_ms
from thunderfx_cli.store.schema import Reading, Run, SubgraphIndex

#: Phases in the order of the table, with what they are called there.
PHASES = (
    ("first_call", "first call"),
    ("first_backward", "first backward"),
    ("forward", "forward"),
    ("backward", "backward"),
    ("step", "step"),
    ("script", "script"),
)
_HEADING = "bold"


def render_run(run: Run) -> Iterator[RenderableType]:
    """Environment, subgraphs, graph breaks, timing, memory, warnings, and what to type next."""
    yield Text(environment_line(run))
    if run.status != "complete":
        text = f"run {run.status}: {run.error}" if run.error else f"run {run.status}"
        yield Text(one_line(text), style="bold red")
    if run.mode == "bench":
        yield from render_bench(run)
        return
    if run.subgraphs:
        yield _heading("Subgraphs")
        yield _subgraph_table(run.subgraphs)
        yield from _fallback_lines(run.subgraphs)
    yield from _break_lines(run)
    if run.timings:
        yield _heading("Time")
        yield _time_table(run)
        yield from _stage_line(run)
    yield _heading("Memory")
    yield _memory_table(run)
    yield from _missing_lines(run)
    if run.memory.nvml:
        yield Text(one_line(run.memory.nvml))
    for warning in run.warnings:
        yield Text(f"warning: {one_line(warning)}", style="yellow")
    if run.check is not None:
        yield _heading("Check against eager")
        yield Text("passed" if run.check.ok else "FAILED", style="green" if run.check.ok else "bold red")
        for line in run.check.lines:
            yield Text(f"  {one_line(line)}")
    yield Text("")
    yield Text(f"run {one_line(run.id)}" + (f" ({one_line(run.name)})" if run.name else ""), style=_HEADING)
    yield Text("next: thunderfx traces --backward")
    yield Text("      thunderfx diff")


def environment_line(run: Run) -> str:
    env = run.environment
    parts = [env.device, env.device_name, f"torch {env.torch}", f"python {env.python}"]
    if env.cuda:
        parts.append(f"CUDA {env.cuda}, driver {env.driver or 'unknown'}")
    if env.threads:
        parts.append(f"{env.threads} threads")
    if env.git_commit:
        parts.append(f"git {env.git_commit[:10]}{' (modified)' if env.git_dirty else ''}")
    return " | ".join(one_line(part) for part in parts if part)


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style=_HEADING)


def _table(*columns: str, left: int = 1) -> Table:
    """A table without lines; the first ``left`` columns are text, the others figures."""
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=True, overflow="ignore")
    return table


def _subgraph_table(subgraphs: tuple[SubgraphIndex, ...]) -> Table:
    table = _table(
        "subgraph",
        "code",
        "lines fwd/bwd",
        "ops fwd/bwd",
        "fusions",
        "fallbacks",
        "saved",
        "compile",
        "backward",
        left=2,
    )
    for item in subgraphs:
        saved = item.saved_for_backward_bytes
        number = f"{item.index}" if item.replaces is None else f"{item.index} (replaces {item.replaces})"
        table.add_row(
            number,
            Text(one_line(item.code)),
            f"{item.forward_lines}/{item.backward_lines}",
            f"{item.forward_ops}/{item.backward_ops}",
            str(item.fusions),
            str(len(item.fallbacks)),
            "-" if saved is None else format_bytes(saved),
            format_ms(item.compile_ms),
            Text(one_line(item.backward_status)),
        )
    return table


def _fallback_lines(subgraphs: tuple[SubgraphIndex, ...]) -> Iterator[Text]:
    for item in subgraphs:
        for fallback in item.fallbacks:
            text = f"fallback in subgraph {item.index}, {fallback.where}, {fallback.stage}: {fallback.reason}"
            yield Text(one_line(text), style="yellow")


def _break_lines(run: Run) -> Iterator[Text]:
    if not run.graph_breaks:
        yield Text("graph breaks: none")
        return
    yield _heading(f"Graph breaks: {len(run.graph_breaks)}")
    for item in run.graph_breaks:
        where = f"{item.file}:{item.line}" if item.file else "place unknown"
        yield Text(f"  {one_line(where)}  {one_line(item.source)}")
        reason = [line.strip() for line in item.reason.splitlines() if line.strip()]
        yield Text(f"    {one_line(reason[0] if reason else 'no reason given')}", style="yellow")


def _time_table(run: Run) -> Table:
    table = _table("", "median", "spread (10%-90%)", "n")
    for key, label in PHASES:
        timing = run.timings.get(key)
        if timing is None or not timing.samples_ms:
            continue
        found = summarise(timing.samples_ms)
        spread = f"{format_ms(found.low_ms)} - {format_ms(found.high_ms)}" if found.n > 1 else "-"
        table.add_row(label, format_ms(found.median_ms), spread, str(found.n))
    return table


def _stage_line(run: Run) -> Iterator[Text]:
    """Compile time by stage; stages of ours below a twentieth of the whole are summed."""
    stages = run.compile_stages_ms
    small = [value for name, value in stages.items() if ":" in name and value < sum(stages.values()) / 20]
    shown = [f"{name} {format_ms(value)}" for name, value in stages.items() if value not in small]
    if small:
        shown.append(f"{len(small)} stages of thunderfx {format_ms(sum(small))}")
    if shown:
        yield Text(one_line(f"compile time by stage: {', '.join(shown)}"))


def _memory_table(run: Run) -> Table:
    table = _table("", "value", "source", left=1)
    table.columns[2].justify = "left"
    for name, reading in run.memory.readings.items():
        if reading.value is not None:
            table.add_row(_label(name), figure(name, reading), Text(one_line(reading.source)))
    return table


def _missing_lines(run: Run) -> Iterator[Text]:
    """Readings that could not be taken, one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reading in run.memory.readings.items():
        if reading.value is None:
            by_reason.setdefault(reading.reason or "not measured", []).append(_label(name))
    for reason, names in by_reason.items():
        yield Text(one_line(f"not measured: {', '.join(names)} ({reason})"))


def _label(name: str) -> str:
    return one_line(name.removesuffix("_bytes").replace("_", " "))


def figure(name: str, reading: Reading) -> str:
    """A reading with its unit, or the reason why there is none."""
    if reading.value is None:
        return one_line(reading.reason or "not measured")
    if name.endswith("_bytes"):
        return format_bytes(reading.value)
    unit = {"percent": " %", "watts": " W", "celsius": " C"}.get(name.rsplit("_", 1)[-1], "")
    return f"{reading.value:.1f}{unit}"
