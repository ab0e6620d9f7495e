"""A torch-level trace -> FX graph: the way back from lowering, for transforms before differentiation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from thunderfx.codegen.constants import revive
from thunderfx.codegen.resolve import resolve
from thunderfx.trace import Arg, Body, BoundSymbol, DictArg, ListArg, Literal, Ref, SliceArg, TraceCtx, TupleArg, check
from thunderfx.trace.bound_symbol import DEL

_METHOD = "torch.Tensor."


def raise_graph(trace: TraceCtx, like: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph module that computes ``trace``, with the placeholders of ``like``.

    A line keeps the metadata (stack trace, module path) of the node of ``like`` that defined its output; a new line
    gets that of the line before. Raises ``TraceError`` for a trace that is not well formed or that names what is not
    here, and ``ValueError`` where its inputs are not those of ``like``.
    """
    check(trace)
    placeholders = [node for node in like.graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(trace.inputs):
        raise ValueError(f"the trace takes {len(trace.inputs)} inputs, its graph {len(placeholders)}")
    return _Raising(trace, like, placeholders).run()


def raise_region(trace: TraceCtx) -> torch.fx.GraphModule:
    """A graph module that computes a trace of operators and returns a tuple; its nodes carry no metadata."""
    return raise_graph(trace, _blank(trace))


class _Raising:
    def __init__(self, trace: TraceCtx, like: torch.fx.GraphModule, placeholders: list[torch.fx.Node]) -> None:
        self.trace = trace
        self.like = like
        self.placeholders = placeholders
        self.graph = torch.fx.Graph()
        self.root = torch.nn.Module()
        self.values: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}
        self.known = {node.name: node.meta for node in like.graph.nodes}
        self.meta: dict[str, Any] = {}

    def run(self) -> torch.fx.GraphModule:
        for variable, old in zip(self.trace.inputs, self.placeholders, strict=True):
            node = self.graph.placeholder(str(old.target))
            node.meta = dict(old.meta)
            self.values[variable.name] = node
        for constant in self.trace.constants:
            self.objects[constant.name] = revive(self.trace.name, constant)
        for line in self.trace.bound_symbols:
            if line.symbol != DEL:
                self.line(line)
        self.graph.output(self.value(self.trace.outputs))
        module = torch.fx.GraphModule(self.root, self.graph)
        module.meta = dict(self.like.meta)
        return module

    def line(self, line: BoundSymbol) -> None:
        args = tuple(self.value(arg) for arg in line.args)
        kwargs = {key: self.value(arg) for key, arg in line.kwargs}
        for variable in line.defines():
            self.meta = self.known.get(variable.name, self.meta)
        target = self.objects.get(line.symbol)
        if isinstance(target, torch.nn.Module):
            node = self.graph.call_module(self.attribute(line.symbol, target), args, kwargs)
        elif line.symbol.startswith(_METHOD) and args:
            node = self.graph.call_method(line.symbol.removeprefix(_METHOD), args, kwargs)
        else:
            node = self.graph.call_function(resolve(line.symbol) if target is None else target, args, kwargs)
        node.meta = {key: value for key, value in self.meta.items() if key not in ("example_value", "val")}
        if line.unpack:
            for index, output in enumerate(line.outputs):
                if output is not None:
                    self.values[output.name] = item = self.graph.call_function(operator.getitem, (node, index))
                    item.meta = dict(node.meta)
        else:
            for variable in line.defines():
                self.values[variable.name] = node

    def attribute(self, wanted: str, value: Any) -> str:
        """Name under which the new module holds ``value``."""
        if not hasattr(self.root, wanted):
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                self.root.register_buffer(wanted, value)
            else:
                setattr(self.root, wanted, value)
        return wanted

    def value(self, arg: Arg) -> Any:
        match arg:
            case Ref(name):
                if name in self.values:
                    return self.values[name]
                held = self.objects[name]
                return self.graph.get_attr(self.attribute(name, held)) if isinstance(held, torch.Tensor) else held
            case ListArg(items):
                return [self.value(item) for item in items]
            case TupleArg(items):
                return tuple(self.value(item) for item in items)
            case DictArg(items):
                return {self.value(key): self.value(value) for key, value in items}
            case SliceArg(start, stop, step):
                return slice(self.value(start), self.value(stop), self.value(step))
            case Literal(kind, text):
                return _literal(kind, text)
            case Body(trace):
                return self.graph.get_attr(self.attribute(trace.name, self.body(trace)))
        return arg

    def body(self, trace: TraceCtx) -> torch.fx.GraphModule:
        held = getattr(self.like, trace.name, None)
        return raise_graph(trace, held if isinstance(held, torch.fx.GraphModule) else _blank(trace))


def _blank(trace: TraceCtx) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    for variable in trace.inputs:
        graph.placeholder(variable.name)
    graph.output(())
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def _literal(kind: str, text: str) -> Any:
    if kind in ("dtype", "layout", "memory_format"):
        return getattr(torch, text)
    if kind == "ellipsis":
        return ...
    read: dict[str, Callable[[str], Any]] = {"device": torch.device, "op": resolve, "int": int, "float": float}
    return read.get(kind, complex)(text)
