"""A printed program with statements of a measurement between its lines: the lines themselves stay as they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Protocol

from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL

#: What a program that is nothing but one call calls.
ONLY_CALL = "__only_call__"


class Probe(Protocol):
    """Python statements to put into a program; names that they use begin with two underscores.

    ``scope`` holds the objects behind these names. ``enter`` and ``leave`` stand before the first and after the last
    line, ``before(i)`` and ``after(i)`` around the line ``bound_symbols[i]``; ``""`` for nothing.
    """

    scope: dict[str, Any]
    enter: str
    leave: str

    def before(self, number: int) -> str: ...

    def after(self, number: int) -> str: ...


def probe_lines(tree: ast.Module, trace: TraceCtx, probe: Probe, *, only_call: bool) -> None:
    """Put the probe's statements into the printed program of ``trace``.

    With ``only_call`` the program's one line becomes a call of ``ONLY_CALL`` with the list of the inputs itself, as the
    program runs without a probe. Line numbers of the printed statements stay, so that tracebacks show them.
    """
    function = printed_function(tree, trace)
    if only_call:
        only = next(number for number, line in enumerate(trace.bound_symbols) if line.symbol != DEL)
        names = [var.name if var is not None else "_" for var in trace.bound_symbols[only].outputs]
        unpacked = f"({', '.join(names)},) = __outputs__"
        parts = (probe.enter, probe.before(only), f"__outputs__ = {ONLY_CALL}(args)", unpacked)
        lines = [*parts, probe.after(only), probe.leave, "return __outputs__"]
        function.body = [made for source in lines for made in _parsed(source, function)]
        return
    body: list[ast.stmt] = []
    entered = False
    for statement, number in statements_of(function, trace):
        is_return = isinstance(statement, ast.Return)
        if not entered and (number is not None or is_return):
            body += _parsed(probe.enter, statement)
            entered = True
        if number is not None:
            before, after = probe.before(number), probe.after(number)
            body += [*_parsed(before, statement), statement, *_parsed(after, statement)]
        else:
            body += [*_parsed(probe.leave, statement), statement] if is_return else [statement]
    function.body = body


def printed_function(tree: ast.Module, trace: TraceCtx) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == trace.name)


def statements_of(function: ast.FunctionDef, trace: TraceCtx) -> Iterator[tuple[ast.stmt, int | None]]:
    """Statements of a printed trace, each with the index of the bound symbol that it is."""
    head = 2 if trace.inputs else 0  # the inputs take their names, and the list of them is cleared
    index = 0
    for number, statement in enumerate(function.body):
        if number < head or isinstance(statement, (ast.FunctionDef, ast.Return)):
            yield statement, None
        else:
            yield statement, index
            index += 1


def _parsed(source: str, at: ast.stmt) -> list[ast.stmt]:
    made = ast.parse(source).body
    for statement in made:
        for node in ast.walk(statement):
            ast.copy_location(node, at)
    return made
