"""Programs that tell which of their lines runs and what it made, for measurements of single lines."""

from __future__ import annotations

import ast
from typing import Any, Protocol

from thunderfx.codegen.probe import printed_function, statements_of
from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL


class Watch(Protocol):
    """Told of each line of a program but ``del``; ``line`` counts the trace's bound symbols from 0."""

    def before(self, line: int) -> None: ...

    def after(self, line: int, made: tuple[Any, ...]) -> None:
        """``made`` holds the line's outputs, without those that are not needed."""


class WatchProbe:
    """Calls of a :class:`Watch` around the lines of ``trace``."""

    enter = leave = ""

    def __init__(self, trace: TraceCtx, watch: Watch) -> None:
        self.scope: dict[str, Any] = {"__before_line__": watch.before, "__after_line__": watch.after}
        self._lines = trace.bound_symbols

    def before(self, number: int) -> str:
        return "" if self._lines[number].symbol == DEL else f"__before_line__({number})"

    def after(self, number: int) -> str:
        line = self._lines[number]
        if line.symbol == DEL:
            return ""
        made = "".join(f"{var.name}, " for var in line.defines())
        return f"__after_line__({number}, ({made}))"


def line_at(trace: TraceCtx, lineno: int) -> int | None:
    """Index of the bound symbol at a line, counted from 1, of the printed trace; ``None`` where none is."""
    function = printed_function(ast.parse(trace.python()), trace)
    return {statement.lineno: index for statement, index in statements_of(function, trace)}.get(lineno)
