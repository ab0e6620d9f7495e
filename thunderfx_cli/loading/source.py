"""Reading and parsing the user's file, with syntax errors that name the file and the line."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from thunderfx_cli.errors import UserCodeError


def shown_path(filename: str | Path) -> str:
    """The path as a user would type it: relative to the working directory when the file lies under it."""
    full = os.path.abspath(filename)
    try:
        relative = os.path.relpath(full)
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        return full
    return full if relative.startswith(os.pardir) else relative


def read_source(path: Path) -> bytes:
    """The bytes of a source file; the parser applies its coding line or byte-order mark."""
    try:
        return path.read_bytes()
    except OSError as exc:
        raise UserCodeError(f"cannot read {shown_path(path)}: {exc.strerror}") from exc


def parse_source(source: str | bytes, filename: str) -> ast.Module:
    """The syntax tree. Raises :class:`UserCodeError` for anything that Python cannot read as source."""
    name = shown_path(filename)
    try:
        return ast.parse(source, filename)
    except SyntaxError as exc:
        raise UserCodeError(syntax_message(exc), where=f"{name}:{exc.lineno}" if exc.lineno else name) from exc
    except ValueError as exc:  # null bytes, before Python 3.12; bytes that the encoding does not allow
        raise UserCodeError(f"not Python source: {exc}", where=name) from exc
    except (RecursionError, MemoryError) as exc:
        raise UserCodeError("the source is nested too deeply for Python's parser", where=name) from exc


def syntax_message(exc: SyntaxError) -> str:
    """``SyntaxError: ...`` followed by the offending line and a caret under the place, where Python knows it."""
    message = f"{type(exc).__name__}: {exc.msg}"
    text = (exc.text or "").rstrip("\n")
    if not text.strip():
        return message
    line = text.lstrip()
    message += f"\n    {line}"
    if exc.offset and exc.offset > 0:
        start = max(exc.offset - 1 - (len(text) - len(line)), 0)
        same_line = exc.end_lineno in (None, exc.lineno) and exc.end_offset
        width = max((exc.end_offset or 0) - exc.offset, 1) if same_line else 1
        message += f"\n    {' ' * min(start, len(line))}{'^' * min(width, len(line) + 1)}"
    return message
