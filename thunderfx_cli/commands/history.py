"""``thunderfx history``: a metric over stored runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def history(
    target: Annotated[str | None, typer.Option("--target", help="Runs whose target holds this text, or *?.")] = None,
    metric: Annotated[
        str, typer.Option("--metric", help="step_time, forward_time, graph_breaks, rss_peak_bytes, ...")
    ] = "step_time",
    as_json: Annotated[bool, typer.Option("--json", help="Print every series as JSON.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Plot a metric over the stored runs and mark where its level changed.

    Runs that differ in target, device, inputs or options are kept apart: the series of the newest run is shown.

    Example: thunderfx history --target nanogpt --metric step_time
    """
    from thunderfx_cli.errors import RunDataError
    from thunderfx_cli.history import history as collect
    from thunderfx_cli.output import plots_here, terminal_width, write_result
    from thunderfx_cli.store import Store
    from thunderfx_cli.store.selection import matching

    found = Store.find(store)
    entries = found.entries()
    for entry in entries:
        if entry.run is None:
            typer.echo(f"warning: {entry.problem}", err=True)
    runs = matching([entry.run for entry in entries if entry.run is not None], target=target)
    if not runs:
        what = "no runs" if target is None else "no run of such a target"
        raise RunDataError(f"there is {what} in {found.root}", hint="See: thunderfx runs")
    result = collect(runs, metric)
    if as_json:
        from thunderfx_cli.render.json_text import json_text

        write_result(json_text(result) + "\n")
        return
    from thunderfx_cli.render.history_view import render_history

    width = terminal_width() if plots_here() else None
    write_result("".join(f"{line}\n" for line in render_history(result, width=width)))
