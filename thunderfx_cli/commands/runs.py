"""``thunderfx runs``: list and remove stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thunderfx_cli.output import write_result

app = typer.Typer(rich_markup_mode=None)
_StoreOption = Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")]


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    store: _StoreOption = None,
) -> None:
    """List stored runs, newest first; remove them with `thunderfx runs rm`.

    Example: thunderfx runs --json
    """
    context.obj = store
    if context.invoked_subcommand is not None:
        return
    from thunderfx_cli.store import Store

    entries = Store.find(store).entries()
    for entry in entries:
        if entry.run is None:
            typer.echo(f"warning: {entry.problem}", err=True)
    readable = [entry.run for entry in entries if entry.run is not None]
    if as_json:
        from thunderfx_cli.render.json_text import json_text
        from thunderfx_cli.render.run_table import run_row

        write_result(json_text([run_row(run) for run in readable]) + "\n")
        return
    if not readable:
        typer.echo("no runs yet; store one with: thunderfx run model.py")
        return
    from thunderfx_cli.render.console import stdout_console
    from thunderfx_cli.render.run_table import run_table

    console = stdout_console()
    with console.capture() as captured:
        console.print(run_table(readable))
    write_result(captured.get())


@app.command("rm")
def remove(
    context: typer.Context,
    refs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Id, unique prefix, name or @N.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: _StoreOption = None,
) -> None:
    """Remove runs; asks first on a terminal.

    Example: thunderfx runs rm @2
    """
    import sys

    from thunderfx.trace.printer import one_line

    from thunderfx_cli.render.figures import format_count
    from thunderfx_cli.store import Store

    found = Store.find(store or context.obj)
    chosen = {folder: one_line(folder.name) for folder in map(found.locate, refs)}
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Remove {format_count(len(chosen), 'run')}: {', '.join(chosen.values())}?", abort=True)
    for folder, name in chosen.items():
        found.remove(folder)
        typer.echo(f"removed {name}")
