"""``thunderfx runs export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id, unique prefix, name or @N.")],
    out: Annotated[Path, typer.Argument(metavar="FILE.tfx", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Write a run to one file, which every reading command takes in the place of a RUN.

    Example: thunderfx runs export @1 main.tfx
    """
    from thunderfx.trace.printer import one_line

    from thunderfx_cli.render.figures import format_bytes
    from thunderfx_cli.store import Store
    from thunderfx_cli.store.archive import export_run

    stored = Store.find(store or context.obj).resolve(run)
    export_run(stored.folder, out, force=force)
    typer.echo(f"{one_line(str(out))}: run {one_line(stored.run.id)}, {format_bytes(out.stat().st_size)}")
