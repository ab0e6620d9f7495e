"""``thunderfx runs``: list stored runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from thunderfx_cli.output import write_result


class Order(StrEnum):
    TIME = "time"
    STEP_TIME = "step_time"
    NAME = "name"


def runs(
    context: typer.Context,
    target: Annotated[str | None, typer.Option("--target", help="Runs whose target holds this text, or *?.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Runs whose name holds this text, or *?.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="AGE", help="Since 2d, 12h or 2026-12-01.")] = None,
    sort: Annotated[
        Order, typer.Option("--sort", help="Newest first, fastest step first, or by name.", show_choices=True)
    ] = Order.TIME,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """List stored runs, newest first.

    Example: thunderfx runs --target nanogpt --since 2d --sort step_time
    """
    context.obj = store
    if context.invoked_subcommand is not None:
        return
    from thunderfx_cli.store import Store
    from thunderfx_cli.store.selection import matching, parse_since

    begin = None if since is None else parse_since("--since", since)
    entries = Store.find(store).entries()
    for entry in entries:
        if entry.run is None:
            typer.echo(f"warning: {entry.problem}", err=True)
    readable = [entry.run for entry in entries if entry.run is not None]
    chosen = matching(readable, target=target, name=name, since=begin)
    from thunderfx_cli.render.run_table import run_lines, run_row, step_time_ms

    if sort is Order.STEP_TIME:
        times = {run.id: step_time_ms(run) for run in chosen}
        chosen.sort(key=lambda run: (times[run.id] is None, times[run.id] or 0.0))
    elif sort is Order.NAME:
        chosen.sort(key=lambda run: (not run.name, run.name))
    if as_json:
        from thunderfx_cli.render.json_text import json_text

        write_result(json_text([run_row(run) for run in chosen]) + "\n")
    elif not readable:
        typer.echo("no runs yet; store one with: thunderfx run model.py")
    elif not chosen:
        typer.echo(f"none of {len(readable)} runs matches")
    else:
        from thunderfx_cli.output import terminal_width

        write_result("".join(f"{line}\n" for line in run_lines(chosen, width=terminal_width())))
