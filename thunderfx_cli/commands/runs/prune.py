"""``thunderfx runs prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def prune(
    context: typer.Context,
    keep: Annotated[int | None, typer.Option("--keep", min=0, metavar="N", help="Keep the newest N runs.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Remove runs older than 30d, 12h or a date.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Remove old runs: all but the newest N, those older than an age, or, with both, those older than it but for
    the newest N. Runs that cannot be read stay.

    Example: thunderfx runs prune --keep 20 --older-than 30d
    """
    import sys

    from thunderfx_cli.errors import UsageError
    from thunderfx_cli.render.figures import format_count
    from thunderfx_cli.render.run_table import run_lines
    from thunderfx_cli.store import Store
    from thunderfx_cli.store.selection import created, parse_since

    if keep is None and older_than is None:
        raise UsageError("say what to remove: --keep N, --older-than 30d, or both")
    before = None if older_than is None else parse_since("--older-than", older_than)
    found = Store.find(store or context.obj)
    readable = [(entry.folder, entry.run) for entry in found.entries() if entry.run is not None]
    old = [(folder, run) for folder, run in readable[keep or 0 :] if before is None or created(run) < before]
    if not old:
        typer.echo("nothing to remove")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{format_count(len(old), 'run')} to remove and nobody to ask", hint="Confirm with --yes.")
        for line in run_lines([run for _, run in old]):
            typer.echo(line)
        typer.confirm(f"Remove {'this run' if len(old) == 1 else f'these {len(old)} runs'}?", abort=True)
    for folder, _ in old:
        found.remove(folder)
    typer.echo(f"removed {format_count(len(old), 'run')}")
