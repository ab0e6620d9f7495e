"""Wires the commands."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from thunderfx_cli.commands.bench import bench
from thunderfx_cli.commands.diff import diff
from thunderfx_cli.commands.history import history
from thunderfx_cli.commands.memory import memory
from thunderfx_cli.commands.run import run
from thunderfx_cli.commands.runs import app as runs_app
from thunderfx_cli.commands.traces import traces

app = typer.Typer(
    name="thunderfx",
    help="Profile PyTorch models and read what the compiler made of them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run)
app.command("traces")(traces)
app.command("diff")(diff)
app.command("bench")(bench)
app.command("memory")(memory)
app.command("history")(history)
app.add_typer(runs_app, name="runs")

DEBUG_VARIABLE = "THUNDERFX_DEBUG"


def _version(wanted: bool) -> None:
    if wanted:
        from thunderfx import __version__

        typer.echo(f"thunderfx {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show full tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if debug:
        os.environ[DEBUG_VARIABLE] = "1"
    if context.invoked_subcommand != "run" and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a script under ``run`` keeps its own stdout
