"""``thunderfx runs rm``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def remove(
    context: typer.Context,
    refs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Id, unique prefix, name or @N.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
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
