"""``thunderfx runs show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Id, unique prefix, name, @N or FILE.tfx.")] = "@1",
    as_json: Annotated[bool, typer.Option("--json", help="Print all that was stored but the traces.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Show the summary of a run again.

    Example: thunderfx runs show @2
    """
    from thunderfx_cli.output import write_result
    from thunderfx_cli.store import Store

    found = Store.find(store or context.obj).resolve(run).run
    if as_json:
        from thunderfx_cli.render.json_text import json_text

        write_result(json_text(found) + "\n")
        return
    from thunderfx_cli.render.console import stdout_console
    from thunderfx_cli.render.run_view import render_run

    console = stdout_console()
    for part in render_run(found):
        console.print(part)
