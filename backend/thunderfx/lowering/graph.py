"""One FX graph -> one trace, line by line."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from thunderfx.lowering.arguments import ArgumentEncoder
from thunderfx.lowering.inputs import described_source
from thunderfx.lowering.origins import OriginTable
from thunderfx.lowering.targets import effect_tags, qualified_name
from thunderfx.lowering.value_types import value_type
from thunderfx.trace import Body, BoundSymbol, Constant, OpaqueType, Ref, TraceCtx, ValueType, Variable
from thunderfx.trace.check import RESERVED
from thunderfx.trace.types import SequenceType


def lower_graph(
    module: torch.fx.GraphModule,
    name: str,
    *,
    sources: Iterable[str] = (),
    dynamo_sources: Iterable[str] = (),
    provenance: str = "",
    values: dict[str, Any] | None = None,
) -> TraceCtx:
    """Trace of ``module``'s graph.

    ``sources`` names the placeholders in order; where it is empty they are named from AOTAutograd's descriptors, with
    ``dynamo_sources`` for the inputs of the Dynamo graph. ``values`` is filled with the fake tensors and symbolic
    numbers that the graph's nodes carry, by the names that the trace gives them.
    """
    lowering = _Lowering(module, name, list(sources), list(dynamo_sources))
    trace = lowering.run(provenance)
    if values is not None:
        values.update((found, node.meta["val"]) for node, found in lowering.names.items() if "val" in node.meta)
    return trace


class _Lowering:
    def __init__(self, module: torch.fx.GraphModule, name: str, sources: list[str], dynamo_sources: list[str]) -> None:
        self.module = module
        self.name = name
        self.sources = sources
        self.dynamo_sources = dynamo_sources
        self.names: dict[torch.fx.Node, str] = {}
        self.taken: set[str] = {name, *RESERVED}
        self.inputs: list[Variable] = []
        self.lines: list[BoundSymbol] = []
        self.constants: dict[str, Constant] = {}
        self.origins = OriginTable()
        self.unpacked: dict[torch.fx.Node, dict[int, torch.fx.Node]] = {}
        self.folded: set[torch.fx.Node] = set()
        self.encoder = ArgumentEncoder(self.reference, self.constant)

    def run(self, provenance: str) -> TraceCtx:
        outputs: Any = ()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.placeholder(node)
            elif node.op == "output":
                outputs = node.args[0]
            elif node.op != "get_attr" and node not in self.folded:
                self.line(node)
        return TraceCtx(
            name=self.name,
            inputs=tuple(self.inputs),
            bound_symbols=tuple(self.lines),
            outputs=self.encoder.encode(outputs),
            origins=tuple(self.origins.origins),
            constants=tuple(self.constants.values()),
            provenance=provenance,
        )

    def fresh(self, wanted: str) -> str:
        """A name that is not taken; FX's own names are identifiers."""
        name, number = wanted if wanted.isidentifier() else "value", 0
        while name in self.taken:
            number += 1
            name = f"{wanted}_{number}"
        self.taken.add(name)
        return name

    def placeholder(self, node: torch.fx.Node) -> None:
        position = len(self.inputs)
        if position < len(self.sources):
            source = self.sources[position]
        else:
            source = described_source(node, self.dynamo_sources)
        self.names[node] = self.fresh(node.name)
        self.inputs.append(Variable(self.names[node], self.type_of(node), source))

    def type_of(self, node: torch.fx.Node) -> ValueType:
        meta = node.meta
        value = meta["val"] if "val" in meta else meta.get("example_value")
        return OpaqueType("unknown") if value is None else value_type(value)

    def constant(self, value: Any, wanted: str) -> Ref:
        """A reference to an object that no argument can spell."""
        for const in self.constants.values():
            if const.value is value:
                return Ref(const.name)
        name = self.fresh(wanted)
        self.constants[name] = Constant(name, value_type(value), value)
        return Ref(name)

    def reference(self, node: torch.fx.Node) -> Ref | Body:
        """What stands for a node where it is used."""
        if node in self.names:
            return Ref(self.names[node])
        owner, value = self.module, None
        for part in str(node.target).split("."):
            value = getattr(owner, part)
            owner = value
        if isinstance(value, torch.fx.GraphModule):
            return Body(lower_graph(value, self.fresh(node.name)))
        return self.constant(value, node.name)

    def line(self, node: torch.fx.Node) -> None:
        args = node.args
        if node.op == "call_method":
            symbol, tags = f"torch.Tensor.{node.target}", _method_tags(str(node.target))
        elif node.op == "call_module":
            target = self.module.get_submodule(str(node.target))
            symbol, tags = self.constant(target, str(node.target).replace(".", "_")).name, ("effect",)
        else:
            name = qualified_name(node.target)
            symbol = name if name is not None else self.constant(node.target, _object_name(node.target)).name
            tags = effect_tags(node.target)
        if node.meta.get("recompute") is not None and _is_recomputed(node):
            tags += ("recomputed",)
        encoded = tuple(self.encoder.encode(arg) for arg in args)
        kwargs = tuple((key, self.encoder.encode(value)) for key, value in node.kwargs.items())
        outputs, unpack = self.outputs(node)
        self.lines.append(
            BoundSymbol(
                symbol=symbol,
                args=encoded,
                kwargs=kwargs,
                outputs=outputs,
                unpack=unpack,
                origin=self.origin(node),
                tags=tags,
            )
        )

    def origin(self, node: torch.fx.Node) -> int | None:
        """The node's own origin; a write-back that AOTAutograd added has that of the value that it writes."""
        found = self.origins.add(node.meta)
        if found is None and node.all_input_nodes:
            found = self.origins.add(node.all_input_nodes[-1].meta)
        return found

    def outputs(self, node: torch.fx.Node) -> tuple[tuple[Variable | None, ...], bool]:
        """Names that a line defines; a sequence that is only taken apart is unpacked in the line itself."""
        kind = self.type_of(node)
        items = _items_taken(node) if isinstance(kind, SequenceType) else None
        if items is None or not isinstance(kind, SequenceType) or max(items, default=0) >= len(kind.items):
            if not node.users and kind == OpaqueType("unknown"):
                return (), False
            self.names[node] = self.fresh(node.name)
            return (Variable(self.names[node], kind),), False
        out: list[Variable | None] = [None] * len(kind.items)
        for index, nodes in items.items():
            name = self.fresh(nodes[0].name)
            for user in nodes:
                self.names[user] = name
                self.folded.add(user)
            out[index] = Variable(name, kind.items[index])
        return tuple(out), True


def _items_taken(node: torch.fx.Node) -> dict[int, list[torch.fx.Node]] | None:
    """For each position the ``getitem`` nodes that take it; ``None`` where the sequence is used in another way."""
    items: dict[int, list[torch.fx.Node]] = {}
    for user in node.users:
        if user.target is not operator.getitem or user.args[0] is not node:
            return None
        index = user.args[1]
        if not isinstance(index, int) or index < 0:
            return None
        items.setdefault(index, []).append(user)
    return items or None


def _is_recomputed(node: torch.fx.Node) -> bool:
    return bool(node.meta.get("autograd_backward")) and node.meta.get("partitioner_tag") != "is_backward"


def _method_tags(name: str) -> tuple[str, ...]:
    return ("mutation",) if name.endswith("_") and not name.endswith("__") else ()


def _object_name(target: Any) -> str:
    name = str(getattr(target, "__name__", type(target).__name__))
    return name if name.isidentifier() else "function"
