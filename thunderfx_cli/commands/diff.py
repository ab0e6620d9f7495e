"""``thunderfx diff``: what changed between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from thunderfx_cli.comparison import RunDiff


def diff(
    before: Annotated[str, typer.Argument(metavar="[A]", help="Run before: id, prefix, name or @N.")] = "@2",
    after: Annotated[str, typer.Argument(metavar="[B]", help="Run after.")] = "@1",
    stage: Annotated[str, typer.Option("--stage", help="Stage whose traces are compared.")] = "execution",
    subgraph: Annotated[int | None, typer.Option("--subgraph", help="Compare this subgraph only.")] = None,
    context: Annotated[int, typer.Option("--context", min=0, help="Equal lines around a difference.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the differences as JSON.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Compare two runs: their traces by structure, then time and memory.

    Example: thunderfx diff before after
    """
    import gc

    from thunderfx_cli.comparison import compare_runs
    from thunderfx_cli.store import Store

    gc.disable()  # a big trace is millions of small objects that live until the process ends
    runs = Store.find(store)
    result = compare_runs(runs.resolve(before), runs.resolve(after), stage=stage, subgraph=subgraph, context=context)
    if as_json:
        typer.echo(to_json(result))
        return
    from thunderfx_cli.render.console import stdout_console
    from thunderfx_cli.render.diff_view import render_run_diff

    console = stdout_console()
    for line in render_run_diff(result, context=context):
        console.print(line)


def to_json(result: RunDiff) -> str:
    """The differences without the equal lines between them; ASCII, so that nothing in it moves a terminal's cursor."""
    import json

    import msgspec

    data = msgspec.to_builtins(result)
    for shown, subgraph in zip(data["subgraphs"], result.subgraphs, strict=True):
        for row, direction in zip(shown.get("directions", ()), subgraph.directions, strict=True):
            if direction.diff is not None:
                row["diff"] = {"added": 0, "removed": 0, "changed": 0, "equal": 0}
                row["diff"].update(msgspec.to_builtins(direction.diff.without_equal()))
    for row, metric in zip(data["metrics"], result.metrics, strict=True):
        row.update(change=metric.change, relative=metric.relative)
    data["traces_equal"] = result.traces_equal
    return json.dumps(data, indent=2)
