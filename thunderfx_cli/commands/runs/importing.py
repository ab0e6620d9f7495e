"""``thunderfx runs import``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE.tfx", help="A file that `thunderfx runs export` wrote.")],
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Bring an exported run into the store.

    Example: thunderfx runs import main.tfx
    """
    from thunderfx_cli.store import Store
    from thunderfx_cli.store.archive import import_run

    found = Store.find(store or context.obj)
    run_id, is_new = import_run(found, file)
    typer.echo(f"imported {run_id}" if is_new else f"{run_id} is in the store already")
