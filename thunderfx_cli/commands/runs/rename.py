"""``thunderfx runs rename``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def rename(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id, unique prefix, name or @N.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help='The new name; "" takes the name away.')],
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Give a run a name by which other commands find it.

    Example: thunderfx runs rename @1 baseline
    """
    from thunderfx.trace.printer import one_line

    from thunderfx_cli.store import Store

    found = Store.find(store or context.obj)
    folder = found.locate(run)
    found.rename(folder, name)
    typer.echo(
        f"{one_line(folder.name)} is called {one_line(name)}" if name else f"{one_line(folder.name)} has no name"
    )
