"""``thunderfx runs``: list and remove stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="List stored runs; remove them with `thunderfx runs rm`.", rich_markup_mode=None)
_StoreOption = Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")]


@app.callback(invoke_without_command=True)
def runs(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    store: _StoreOption = None,
) -> None:
    """List stored runs, newest first.

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
        import msgspec

        from thunderfx_cli.render.run_table import run_row

        rows = [run_row(run) for run in readable]
        typer.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    if not readable:
        typer.echo("no runs yet; store one with: thunderfx run model.py")
        return
    from thunderfx_cli.render.console import stdout_console
    from thunderfx_cli.render.run_table import run_table

    stdout_console().print(run_table(readable))


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

    from thunderfx_cli.store import Store

    found = Store.find(store or context.obj)
    chosen = {stored.folder: stored for stored in (found.resolve(ref) for ref in refs)}
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Remove {len(chosen)} run(s): {', '.join(folder.name for folder in chosen)}?", abort=True)
    for folder in chosen:
        found.remove(folder)
        typer.echo(f"removed {folder.name}")
