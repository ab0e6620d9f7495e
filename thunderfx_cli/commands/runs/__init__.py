"""``thunderfx runs``: stored runs as a library."""

from __future__ import annotations

import typer

from thunderfx_cli.commands.runs.export import export
from thunderfx_cli.commands.runs.importing import import_
from thunderfx_cli.commands.runs.listing import runs
from thunderfx_cli.commands.runs.prune import prune
from thunderfx_cli.commands.runs.remove import remove
from thunderfx_cli.commands.runs.rename import rename
from thunderfx_cli.commands.runs.show import show

app = typer.Typer(rich_markup_mode=None)
app.callback(invoke_without_command=True)(runs)
app.command("show")(show)
app.command("rename")(rename)
app.command("rm")(remove)
app.command("prune")(prune)
app.command("export")(export)
app.command("import")(import_)
