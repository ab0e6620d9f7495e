"""Programs that tell which of their lines runs and what it made, for measurements of single lines."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL

_BEFORE, _AFTER = "__before_line__", "__after_line__"


class Watch(Protocol):
    """Told of each line of a program but ``del``; ``line`` counts the trace's bound symbols from 0."""

    def before(self, line: int) -> None: ...

    def after(self, line: int, made: tuple[Any, ...]) -> None:
        """``made`` holds the line's outputs, without those that are not needed."""


def watch_lines(tree: ast.Module, trace: TraceCtx, watch: Watch) -> dict[str, Any]:
    """Put calls of ``watch`` around the statements of the printed ``trace``; returns the names that they need.

    Line numbers of the statements stay, so that tracebacks show the trace's lines.
    """
    function = _function(tree, trace)
    body: list[ast.stmt] = []
    for statement, index in _statements(function, trace):
        line = None if index is None else trace.bound_symbols[index]
        if line is None or line.symbol == DEL:
            body.append(statement)
            continue
        made = [ast.Name(var.name, ast.Load()) for var in line.defines()]
        before = ast.Expr(ast.Call(ast.Name(_BEFORE, ast.Load()), [ast.Constant(index)], []))
        values = ast.Tuple(list[ast.expr](made), ast.Load())
        after = ast.Expr(ast.Call(ast.Name(_AFTER, ast.Load()), [ast.Constant(index), values], []))
        for extra in (before, after):
            ast.fix_missing_locations(ast.copy_location(extra, statement))
        body += [before, statement, after]
    function.body = body
    return {_BEFORE: watch.before, _AFTER: watch.after}


def line_at(trace: TraceCtx, lineno: int) -> int | None:
    """Index of the bound symbol at a line, counted from 1, of the printed trace; ``None`` where none is."""
    tree = ast.parse(trace.python())
    lines = {statement.lineno: index for statement, index in _statements(_function(tree, trace), trace)}
    return lines.get(lineno)


def _function(tree: ast.Module, trace: TraceCtx) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == trace.name)


def _statements(function: ast.FunctionDef, trace: TraceCtx) -> Iterator[tuple[ast.stmt, int | None]]:
    """Statements of a printed trace, each with the index of the bound symbol that it is."""
    head = 2 if trace.inputs else 0  # the inputs take their names, and the list of them is cleared
    index = 0
    for number, statement in enumerate(function.body):
        if number < head or isinstance(statement, (ast.FunctionDef, ast.Return)):
            yield statement, None
        else:
            yield statement, index
            index += 1


def watched_call(call: Callable[[list[Any]], Any], watch: Watch) -> Callable[[list[Any]], Any]:
    """A program that is one call: its line 0."""

    def run(args: list[Any]) -> Any:
        watch.before(0)
        made = call(args)
        watch.after(0, tuple(value for value in made if value is not None))
        return made

    return run
