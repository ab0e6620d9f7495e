"""``thunderfx diff``: what changed between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def diff(
    before: Annotated[str, typer.Argument(metavar="[A]", help="Run before: id, prefix, name or @N.")] = "@2",
    after: Annotated[str, typer.Argument(metavar="[B]", help="Run after.")] = "@1",
    stage: Annotated[str, typer.Option("--stage", help="Stage whose traces are compared.")] = "execution",
    subgraph: Annotated[int | None, typer.Option("--subgraph", help="Compare this subgraph only.")] = None,
    context: Annotated[int, typer.Option("--context", min=0, help="Equal lines around a difference.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the differences as JSON.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Compare two runs: their traces by structure, then time and memory."""
    import gc

    from thunderfx_cli.comparison import compare_runs
    from thunderfx_cli.store import Store

    gc.disable()  # a big trace is millions of small objects that live until the process ends
    runs = Store.find(store)
    result = compare_runs(runs.resolve(before), runs.resolve(after), stage=stage, subgraph=subgraph, context=context)
    if as_json:
        typer.echo(to_json(result))
        return
    from rich.console import Console

    from thunderfx_cli.render.diff_view import render_run_diff

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in render_run_diff(result, context=context):
        console.print(line)


def to_json(result: object) -> str:
    """The differences without the equal lines between them."""
    import msgspec

    from thunderfx_cli.comparison import RunDiff

    assert isinstance(result, RunDiff)
    subgraphs = tuple(
        msgspec.structs.replace(
            s,
            directions=tuple(
                d if d.diff is None else msgspec.structs.replace(d, diff=d.diff.without_equal()) for d in s.directions
            ),
        )
        for s in result.subgraphs
    )
    data = msgspec.to_builtins(msgspec.structs.replace(result, subgraphs=subgraphs))
    for row, metric in zip(data["metrics"], result.metrics, strict=True):
        row.update(change=metric.change, relative=metric.relative)
    data["traces_equal"] = result.traces_equal
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
