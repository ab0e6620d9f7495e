"""Writing a command's result to stdout."""

from __future__ import annotations

import os
import sys


def write_result(text: str) -> None:
    """Write ``text`` to stdout; a reader that has enough (``| head``) ends the command, quietly and with code 0."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is, ``None`` where it is none."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def plots_here() -> bool:
    """Whether stdout is a terminal that places characters and shows those of a plot."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb" and encoding.startswith("utf")
