"""Compile the printed program.

The text is compiled as it stands; names of operators are looked up once, when it is compiled, and not at each call.
The text is registered with ``linecache``, so that a traceback through a trace shows its lines.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import weakref
from collections.abc import Callable
from typing import Any

import torch

from thunderfx.codegen.constants import revive
from thunderfx.codegen.dispatch import below_autograd
from thunderfx.codegen.fast_calls import fast_call
from thunderfx.codegen.probe import ONLY_CALL, Probe, probe_lines
from thunderfx.codegen.resolve import resolve
from thunderfx.codegen.watch import Watch, WatchProbe, line_at
from thunderfx.trace import ListArg, Ref, TraceCtx, TupleArg, check, unfused
from thunderfx.trace.bound_symbol import DEL

_serial = itertools.count()
_traces: dict[str, TraceCtx] = {}  #: of the programs that are in use, by the name of their file
_ROOTS = frozenset({"torch", "aten", "operator", "math"})


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in _ROOTS or not parts:
        return None
    return ".".join([node.id, *reversed(parts)])


class _EarlyBinding(ast.NodeTransformer):
    """Replaces dotted names by names of the objects that they stand for."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    def _bind(self, key: str, value: Any) -> ast.Name:
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"__{len(self._names)}__"
            self.bound[name] = value
        return ast.Name(name, ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        key = _dotted(node)
        if key is None:
            return node
        return ast.copy_location(self._bind(key, resolve(key)), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        key = _dotted(node.func)
        if key == "torch.device" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            text = str(node.args[0].value)
            return ast.copy_location(self._bind(f"device {text}", torch.device(text)), node)
        if key is not None:
            found = resolve(key)
            fast = fast_call(found) if type(found) is torch._ops.OpOverload else found
            node.func = ast.copy_location(self._bind(f"call {key}", fast), node.func)
        elif isinstance(node.func, ast.Attribute):
            node.func = self.visit(node.func)
        node.args = [self.visit(arg) for arg in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node

    def visit_Import(self, node: ast.Import) -> None:
        return None


def boxed(trace: TraceCtx) -> Callable[[list[Any]], Any]:
    """Compile ``trace``; the callable takes a list of the inputs, which it clears.

    Raises ``TraceError`` where the trace is not well formed or names what is not here.
    """
    function = below_autograd(compiled(trace))
    function._boxed_call = True  # type: ignore[attr-defined]
    return function


def compiled(trace: TraceCtx, watch: Watch | None = None, *, probe: Probe | None = None) -> Callable[[list[Any]], Any]:
    """As :func:`boxed`, but the program alone, to be run below autograd; ``watch`` is told of each line that runs.

    ``probe`` puts statements of its own between the lines instead. Raises as :func:`boxed`.
    """
    objects = {const.name for const in trace.constants if const.value is not None}
    if any(line.subsymbols and line.symbol not in objects for line in trace.bound_symbols):
        trace = unfused(trace)  # read back from a store, which keeps no compiled objects
    check(trace)
    if watch is not None:
        probe = WatchProbe(trace, watch)
    source = trace.python()
    filename = f"<thunderfx {trace.name} {next(_serial)}>"
    tree = ast.parse(source, filename)
    binding = _EarlyBinding()
    tree.body = [binding.visit(node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    scope: dict[str, Any] = {**{const.name: revive(trace.name, const) for const in trace.constants}, **binding.bound}
    only = _only_call(trace, scope)
    if probe is not None:
        scope |= {**probe.scope, ONLY_CALL: only}
        probe_lines(tree, trace, probe, only_call=only is not None)
    exec(compile(tree, filename, "exec"), scope)
    function: Callable[[list[Any]], Any] = scope[trace.name]
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    _traces[filename] = trace
    for table in (linecache.cache, _traces):
        weakref.finalize(function, table.pop, filename, None)
    return only if only is not None and probe is None else function


def trace_at(filename: str, lineno: int) -> tuple[TraceCtx, int | None] | None:
    """The trace behind a frame of a compiled program, with the index of its bound symbol at that line of the text;
    ``None`` for another file."""
    trace = _traces.get(filename)
    return None if trace is None else (trace, line_at(trace, lineno))


def _only_call(trace: TraceCtx, scope: dict[str, Any]) -> Callable[[list[Any]], Any] | None:
    """What the program calls, where it does nothing but to hand its inputs on and to return what it gets.

    Called without the program around it, it can free inputs while it runs: the program's own names would keep them.
    """
    lines = [line for line in trace.bound_symbols if line.symbol != DEL]
    if len(lines) != 1 or not lines[0].has_tag("fused") or not isinstance(trace.outputs, (ListArg, TupleArg)):
        return None
    given = (ListArg(tuple(Ref(var.name) for var in trace.inputs)),)
    made = [Ref(var.name) if var is not None else None for var in lines[0].outputs]
    same = len(made) == len(trace.outputs.items) and all(
        ref is None or ref == item for ref, item in zip(made, trace.outputs.items, strict=True)
    )
    return scope[lines[0].symbol] if lines[0].args == given and same else None


def unboxed(trace: TraceCtx) -> Callable[..., Any]:
    """Like :func:`boxed`, but the callable takes the inputs one by one and returns a tuple of the outputs."""
    function = boxed(trace)
    expected = len(trace.inputs)

    def run(*inputs: Any) -> Any:
        if len(inputs) != expected:
            raise TypeError(f"trace {trace.name!r} takes {expected} inputs ({len(inputs)} given)")
        return function(list(inputs))

    run.__name__ = trace.name
    return run
