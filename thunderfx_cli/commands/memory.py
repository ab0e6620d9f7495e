"""``thunderfx memory``: what held memory in a run's step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thunderfx_cli.output import write_result


def memory(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Run: id, prefix, name or @N.")] = "@1",
    top: Annotated[int, typer.Option("--top", min=1, help="Rows of each table.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Explain a run's memory: the peak of a step, what is saved for backward, what checkpointing would save.

    Example: thunderfx memory @1 --top 20
    """
    from thunderfx_cli.errors import RunDataError
    from thunderfx_cli.store import Store

    stored = Store.find(store).resolve(run)
    profile = stored.load_memory()
    if profile is None:
        raise RunDataError(
            "this run holds nothing about what held memory",
            hint="Runs of a model that compiled hold it: thunderfx run model.py",
        )
    if as_json:
        from thunderfx_cli.render.json_text import json_text

        write_result(json_text(profile) + "\n")
        return
    from thunderfx_cli.render.console import stdout_console
    from thunderfx_cli.render.memory_view import render_memory

    console = stdout_console()
    with console.capture() as captured:
        for part in render_memory(profile, top, console.width if console.is_terminal else None):
            console.print(part)
    write_result(captured.get())
