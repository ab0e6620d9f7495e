"""``thunderfx traces``: print the traces of a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thunderfx_cli.output import write_result

if TYPE_CHECKING:
    from thunderfx.profiling.costs import TraceCosts
    from thunderfx.trace import TraceCtx

    from thunderfx_cli.store import StoredRun
    from thunderfx_cli.store.schema import SubgraphIndex, TraceIndex


def traces(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Run: id, prefix, name or @N.")] = "@1",
    forward: Annotated[bool, typer.Option("--forward", help="Forward traces only.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Backward traces only.")] = False,
    both: Annotated[bool, typer.Option("--both", help="Forward and backward traces (the default).")] = False,
    subgraph: Annotated[int | None, typer.Option("--subgraph", help="This subgraph only.")] = None,
    stage: Annotated[str, typer.Option("--stage", help="The trace after this stage.")] = "execution",
    why: Annotated[bool, typer.Option("--why", help="Say why a line stayed out of a fusion.")] = False,
    source: Annotated[bool, typer.Option("--source", help="Print the code that executors generated.")] = False,
    list_stages: Annotated[bool, typer.Option("--list-stages", help="List the stages and stop.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The bare program, ready to run.")] = False,
    sort: Annotated[str, typer.Option("--sort", help="List lines, most first: time, memory or flops.")] = "",
    top: Annotated[int | None, typer.Option("--top", min=1, help="List so many lines.")] = None,
    module: Annotated[str, typer.Option("--module", help="List the lines of this module and those in it.")] = "",
    grep: Annotated[str, typer.Option("--grep", help="List the lines that hold this text.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the traces, or the list, as JSON.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Print the traces of a run, subgraph by subgraph, with what each line costs; or list lines by their cost.

    Example: thunderfx traces @1 --backward --sort time --top 15
    """
    import gc

    from thunderfx_cli.errors import RunDataError, UsageError
    from thunderfx_cli.store import Store

    gc.disable()  # a big trace is millions of small objects that live until the process ends
    forms = {"--why": why, "--source": source, "--list-stages": list_stages, "--raw": raw}
    asked = [option for option, is_set in forms.items() if is_set]
    if len(asked) > 1 or (as_json and (why or source or raw)):
        raise UsageError(f"{' and '.join([*asked, *(['--json'] if as_json else [])])} do not go together")
    listing = bool(sort or top or module or grep)
    if listing and (asked or stage != "execution"):
        raise UsageError(
            f"--sort, --top, --module and --grep list what runs, and do not go with {asked[0] if asked else '--stage'}"
        )
    stored = Store.find(store).resolve(run)
    direction = None if both or forward == backward else ("forward" if forward else "backward")
    if not stored.run.subgraphs:
        raise RunDataError("nothing was compiled in this run, so it has no traces")
    _check_choice(stored, stage, subgraph)
    if list_stages:
        _list_stages(stored, direction, subgraph, as_json=as_json)
        return
    if listing:
        _list_lines(stored, direction, subgraph, sort, top, module, grep, as_json=as_json)
        return
    chosen = list(stored.traces(direction, subgraph, stage))
    notes = _missing(stored, direction, subgraph, stage, chosen)
    if as_json or raw:
        for note in notes:
            typer.echo(note, err=True)
        _print_json(stored, chosen) if as_json else _print_raw(stored, chosen)
    elif source:
        _print_sources(stored, chosen)
    else:
        _print(stored, chosen, notes, why=why)


def _check_choice(stored: StoredRun, stage: str, subgraph: int | None) -> None:
    from thunderfx_cli.errors import UsageError

    known = dict.fromkeys(index.stage for graph in stored.run.subgraphs for index in graph.traces)
    if stage not in known and known:
        raise UsageError(f"--stage {stage}: this run has the stages {', '.join(known)}")
    numbers = [graph.index for graph in stored.run.subgraphs]
    if subgraph is not None and subgraph not in numbers:
        raise UsageError(f"--subgraph {subgraph}: this run has the subgraphs {', '.join(map(str, numbers))}")


def _missing(
    stored: StoredRun,
    direction: str | None,
    subgraph: int | None,
    stage: str,
    chosen: list[tuple[SubgraphIndex, TraceIndex]],
) -> list[str]:
    """One line for each subgraph and direction that has no trace to show, with the reason."""
    from thunderfx_cli.render.trace_view import missing

    shown = {(graph.index, index.direction) for graph, index in chosen}
    return [
        missing(graph, way, stage)
        for graph in stored.run.subgraphs
        if subgraph is None or graph.index == subgraph
        for way in (("forward", "backward") if direction is None else (direction,))
        if (graph.index, way) not in shown
    ]


def _list_stages(stored: StoredRun, direction: str | None, subgraph: int | None, *, as_json: bool) -> None:
    from thunderfx.trace.printer import one_line

    from thunderfx_cli.render.figures import format_count, format_ms

    rows = [
        (graph.index, index)
        for graph in stored.run.subgraphs
        if subgraph is None or graph.index == subgraph
        for index in graph.traces
        if direction is None or index.direction == direction
    ]
    if as_json:
        from thunderfx_cli.render.json_text import json_text

        names = ("direction", "stage", "lines", "time_ms")
        data = [{"subgraph": number} | {name: getattr(index, name) for name in names} for number, index in rows]
        write_result(json_text(data) + "\n")
        return
    out = []
    for number, index in rows:
        figures = f"{format_count(index.lines, 'line'):>12}  {format_ms(index.time_ms):>9}"
        out.append(one_line(f"subgraph {number}  {index.direction:8}  {index.stage:12}  {figures}") + "\n")
    write_result("".join(out))


def _list_lines(
    stored: StoredRun,
    direction: str | None,
    subgraph: int | None,
    sort: str,
    top: int | None,
    module: str,
    grep: str,
    *,
    as_json: bool,
) -> None:
    """Lines of all traces as a table. Raises ``RunDataError`` for a run without costs."""
    import sys

    from thunderfx_cli.costs import all_lines, chosen
    from thunderfx_cli.render.console import stdout_console
    from thunderfx_cli.render.line_table import compared, row_data, rows

    traces = all_lines(stored, direction, subgraph)
    total_ms = sum(found.costs.lines_ms or 0.0 for found in traces)
    lines = chosen(traces, sort=sort, top=top, module=module, grep=grep)
    if as_json:
        from thunderfx_cli.render.json_text import json_text

        write_result(json_text([row_data(item, total_ms) for item in lines]) + "\n")
        return
    width = stdout_console().width if sys.stdout.isatty() else None
    out = list(rows(lines, total_ms, width))
    for way in ("forward", "backward"):
        text = compared(stored.run, way, [found.costs for found in traces if found.index.direction == way])
        out += [f"# {text}"] if text else []
    write_result("\n".join(out) + "\n")


def _print_raw(stored: StoredRun, chosen: list[tuple[SubgraphIndex, TraceIndex]]) -> None:
    write_result("\n".join(stored.program(index) for _, index in chosen))


def _print_sources(stored: StoredRun, chosen: list[tuple[SubgraphIndex, TraceIndex]]) -> None:
    from thunderfx_cli.errors import RunDataError
    from thunderfx_cli.render.trace_view import heading, sources

    blocks = []
    for graph, index in chosen:
        found = sources(stored.load_trace(index))
        if found:
            head = "\n".join(f"# {line}" for line in heading(graph, index))
            blocks.append(f"{head}\n{found}")
    if not blocks:
        raise RunDataError(
            "no executor generated code for these traces", hint="Run with --executors inductor, for example."
        )
    write_result("\n".join(blocks))


def _print_json(stored: StoredRun, chosen: list[tuple[SubgraphIndex, TraceIndex]]) -> None:
    import msgspec

    from thunderfx_cli.render.json_text import json_text

    rows = [
        {
            "subgraph": graph.index,
            "direction": index.direction,
            "stage": index.stage,
            "trace": msgspec.Raw(stored.load_trace(index).to_json()),
        }
        for graph, index in chosen
    ]
    write_result(json_text(rows) + "\n")


def _body(
    stored: StoredRun,
    graph: SubgraphIndex,
    index: TraceIndex,
    costs: dict[str, list[TraceCosts]],
    why: bool,
    trace: TraceCtx,
) -> str:
    """The commented program with what its lines cost, where the run tells; its costs go into ``costs``."""
    from thunderfx_cli.costs import lines_of
    from thunderfx_cli.render.line_table import footer, notes_of
    from thunderfx_cli.render.trace_view import body

    found = lines_of(stored, graph, index, trace)
    if found is None:
        return body(trace, why=why)
    costs[index.direction].append(found.costs)
    text = body(trace, why=why, notes=notes_of(found.lines, trace, stored.run.ceilings))
    return f"{text}# {footer(found.costs)}\n"


def _print(stored: StoredRun, chosen: list[tuple[SubgraphIndex, TraceIndex]], notes: list[str], *, why: bool) -> None:
    """Highlighted on a terminal and through a pager where it is long; plain text in a pipe."""
    import functools
    import sys

    from thunderfx_cli.render.line_table import compared
    from thunderfx_cli.render.trace_view import heading

    blocks = []
    costs: dict[str, list[TraceCosts]] = {"forward": [], "backward": []}
    for graph, index in chosen:
        head = "\n".join(f"# {line}" for line in heading(graph, index))
        text = stored.text(index, functools.partial(_body, stored, graph, index, costs, why))
        blocks.append(f"{head}\n{text}")
    blocks += [f"# {text}\n" for way, found in costs.items() if (text := compared(stored.run, way, found))]
    blocks += [f"# {note}\n" for note in notes]
    text = "\n".join(blocks)
    if not sys.stdout.isatty():
        write_result(text)
        return
    from rich.syntax import Syntax
    from rich.text import Text

    from thunderfx_cli.render.console import stdout_console

    console = stdout_console()
    shown: Syntax | Text = Text(text)
    if not console.no_color:
        shown = Syntax(text, "python", theme="ansi_dark", background_color="default", word_wrap=False)
    if text.count("\n") > console.height:
        import os

        os.environ.setdefault("LESS", "-RFX")
        with console.pager(styles=not console.no_color):
            console.print(shown)
    else:
        console.print(shown)
