"""``thunderfx traces``: print the traces of a stored run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from thunderfx_cli.store import StoredRun
    from thunderfx_cli.store.schema import SubgraphIndex, TraceIndex


def traces(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Run: id, prefix, name or @N.")] = "@1",
    forward: Annotated[bool, typer.Option("--forward", help="Forward traces only.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Backward traces only.")] = False,
    both: Annotated[bool, typer.Option("--both", help="Forward and backward traces (the default).")] = False,
    subgraph: Annotated[int | None, typer.Option("--subgraph", help="This subgraph only.")] = None,
    stage: Annotated[str, typer.Option("--stage", help="The trace after this stage.")] = "execution",
    list_stages: Annotated[bool, typer.Option("--list-stages", help="List the stages and stop.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="The bare program, ready to run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the traces as JSON.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Print the traces of a run, subgraph by subgraph.

    Example: thunderfx traces @1 --backward --subgraph 0
    """
    from thunderfx_cli.errors import RunDataError
    from thunderfx_cli.store import Store

    stored = Store.find(store).resolve(run)
    if list_stages:
        _list_stages(stored)
        return
    direction = None if both or forward == backward else ("forward" if forward else "backward")
    if not stored.run.subgraphs:
        raise RunDataError("nothing was compiled in this run, so it has no traces")
    _check_choice(stored, stage, subgraph)
    chosen = list(stored.traces(direction, subgraph, stage))
    if as_json:
        _print_json(stored, chosen)
    elif raw:
        for _, index in chosen:
            typer.echo(stored.load_trace(index).python())
    else:
        _print(stored, chosen, missing=list(_missing(stored, direction, subgraph, chosen)))


def _check_choice(stored: StoredRun, stage: str, subgraph: int | None) -> None:
    from thunderfx_cli.errors import UsageError

    known = dict.fromkeys(index.stage for graph in stored.run.subgraphs for index in graph.traces)
    if stage not in known and known:
        raise UsageError(f"--stage {stage}: this run has the stages {', '.join(known)}")
    numbers = [graph.index for graph in stored.run.subgraphs]
    if subgraph is not None and subgraph not in numbers:
        raise UsageError(f"--subgraph {subgraph}: this run has the subgraphs {', '.join(map(str, numbers))}")


def _missing(
    stored: StoredRun, direction: str | None, subgraph: int | None, chosen: list[tuple[SubgraphIndex, TraceIndex]]
) -> list[str]:
    """One line for each subgraph and direction that has no trace to show, with the reason."""
    shown = {(graph.index, index.direction) for graph, index in chosen}
    lines = []
    for graph in stored.run.subgraphs:
        if subgraph is not None and graph.index != subgraph:
            continue
        for way in ("forward", "backward") if direction is None else (direction,):
            if (graph.index, way) not in shown:
                fallen = next((item.reason for item in graph.fallbacks if item.where == way), "")
                status = graph.backward_status if way == "backward" else "no trace was kept"
                reason = f"fell back: {fallen}" if fallen else status
                lines.append(f"subgraph {graph.index} {way}: {reason}")
    return lines


def _list_stages(stored: StoredRun) -> None:
    from thunderfx.trace.printer import one_line

    for graph in stored.run.subgraphs:
        for index in graph.traces:
            text = f"subgraph {graph.index}  {index.direction:8}  {index.stage:12}  {index.lines} lines"
            typer.echo(one_line(text))


def _print_json(stored: StoredRun, chosen: list[tuple[SubgraphIndex, TraceIndex]]) -> None:
    import msgspec

    rows = [
        {
            "subgraph": graph.index,
            "direction": index.direction,
            "stage": index.stage,
            "trace": msgspec.Raw(stored.load_trace(index).to_json()),
        }
        for graph, index in chosen
    ]
    typer.echo(msgspec.json.encode(rows).decode())


def _print(stored: StoredRun, chosen: list[tuple[SubgraphIndex, TraceIndex]], *, missing: list[str]) -> None:
    """Highlighted on a terminal and through a pager where it is long; plain text in a pipe."""
    import sys

    from thunderfx.trace.printer import one_line

    from thunderfx_cli.render.trace_view import heading, trace_text

    blocks = []
    for graph, index in chosen:
        head = "\n".join(f"# {line}" for line in heading(graph, index))
        blocks.append(f"{head}\n{trace_text(stored.load_trace(index))}")
    blocks += [f"# {one_line(line)}\n" for line in missing]
    text = "\n".join(blocks)
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.syntax import Syntax

    from thunderfx_cli.render.console import stdout_console

    console = stdout_console()
    syntax = Syntax(text, "python", theme="ansi_dark", background_color="default", word_wrap=False)
    if text.count("\n") > console.height:
        import os

        os.environ.setdefault("LESS", "-RFX")
        with console.pager(styles=not console.no_color):
            console.print(syntax)
    else:
        console.print(syntax)
