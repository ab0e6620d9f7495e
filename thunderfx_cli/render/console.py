"""Consoles: results go to stdout, all else to stderr."""

from __future__ import annotations

import os
import sys

from rich.console import Console

#: Lines of piped output are never broken: readers of a pipe want one line per line.
PIPE_WIDTH = 10_000


def stdout_console() -> Console:
    """Colour and the terminal's width on a terminal; plain text of any width in a pipe. ``NO_COLOR`` is respected."""
    terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if terminal else PIPE_WIDTH,
        force_terminal=terminal,
        no_color=True if "NO_COLOR" in os.environ or not terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def stderr_console() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False, force_terminal=sys.stderr.isatty())
