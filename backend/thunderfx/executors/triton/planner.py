"""From a graph of primitive operators to kernel plans.

Nothing is computed into memory but what must be: the region's outputs, and reductions that a kernel of another shape
needs. A kernel evaluates what it stores backwards to what it loads; a view only changes the coordinates at which its
operand is evaluated. Reductions over the same split into rows and columns share a kernel with all that is computed of
them (softmax, LayerNorm with its prologue and epilogue).
"""

from __future__ import annotations

import torch

from thunderfx.executors.triton.builder import Builder, Realize
from thunderfx.executors.triton.nodes import (
    Node,
    Unsupported,
    args_of,
    dtype,
    is_reduction,
    numel,
    short_name,
    split_of,
)
from thunderfx.executors.triton.plan import Buffer, Kernel
from thunderfx.executors.triton.sizes import Size, product, same
from thunderfx.executors.triton.split import split_long_reductions
from thunderfx.executors.triton.views import ALIASES


class Plan:
    """Kernels of a region in order. ``stored`` names the buffer of each node that a kernel stores, ``inputs`` those of
    placeholders.

    Raises :class:`Unsupported` where the graph holds what no kernel is generated for.
    """

    def __init__(self, graph: torch.fx.Graph) -> None:
        split_long_reductions(graph)
        self.kernels: list[Kernel] = []
        self.inputs: dict[Node, Buffer] = {}
        for number, node in enumerate(graph.find_nodes(op="placeholder")):
            if isinstance(node.meta.get("val"), torch.Tensor):
                self.inputs[node] = Buffer(f"in{number}", dtype(node))
        self.outputs = list(args_of(graph.output_node())[0])
        bases = [self.base(item) for item in self.outputs if isinstance(item, Node)]
        self.realized = [node for node in dict.fromkeys(bases) if node not in self.inputs]
        self.order = {node: at for at, node in enumerate(graph.nodes)}
        while True:
            try:
                self._build()
                break
            except Realize as e:
                if e.node in self.realized:
                    raise Unsupported(f"{e.node} at coordinates that no kernel gives") from None
                self.realized.append(e.node)
            except ValueError as e:
                raise Unsupported(str(e)) from None

    def base(self, node: Node) -> Node:
        """What ``node`` is a view of, where the region need not store more for that; else itself."""
        at = node
        while short_name(at) in ALIASES:
            at = args_of(at)[0]
        return at if at in self.inputs or same(numel(at), numel(node)) else node

    def _build(self) -> None:
        self.stored = {node: Buffer(f"out{at}", dtype(node)) for at, node in enumerate(self.realized)}
        self.kernels = []
        builders: list[Builder] = []
        ordered = sorted(self.realized, key=self.order.__getitem__)
        spaces = self._spaces(ordered)
        for node in ordered:
            key = spaces[node]
            over = [at for at in self.cone(node) if is_reduction(at) and split_of(at) == key]
            able = (b for b in builders if b.key == key and self._may_join(node, b, builders))
            if not any(builder.try_store(node, over) for builder in able):
                builders.append(Builder(self.inputs, self.stored, key, f"kernel{len(builders)}"))
                builders[-1].store(node, over)
        self.kernels = [builder.kernel for builder in builders]

    def cone(self, node: Node) -> list[Node]:
        """Nodes that are computed with ``node``, itself too, in order: up to what is loaded."""
        seen: set[Node] = set()
        todo = [node]
        while todo:
            at = todo.pop()
            if at in seen or at in self.inputs or (at is not node and at in self.stored):
                continue
            seen.add(at)
            todo += at.all_input_nodes
        return sorted(seen, key=self.order.__getitem__)

    def needs(self, node: Node) -> set[Node]:
        """Stored nodes that computing ``node`` loads."""
        return {
            other for at in self.cone(node) for other in at.all_input_nodes if other in self.stored and other != node
        }

    def _space(self, node: Node) -> tuple[Size, Size]:
        """Rows and columns of the kernel that stores ``node``."""
        reductions = [at for at in self.cone(node) if is_reduction(at)]
        if not reductions:
            return numel(node), 1
        splits = {at: split_of(at) for at in reductions}
        wanted = splits[reductions[-1]]
        for at, split in splits.items():
            if split != wanted:
                raise Realize(at)
        size = numel(node)
        if not same(size, wanted[0]) and not same(size, product(wanted)):
            raise Realize(next(at for at in reversed(reductions) if at is not node))
        if isinstance(wanted[1], int) and wanted[1] == 0:
            raise Unsupported("a reduction over nothing")
        return wanted

    def _spaces(self, nodes: list[Node]) -> dict[Node, tuple[Size, Size]]:
        """The space of each node's kernel. What has no reduction goes with a neighbour that has, if the sizes fit."""
        spaces = {node: self._space(node) for node in nodes}
        needs = {node: self.needs(node) for node in nodes}
        for node in [*nodes, *reversed(nodes)]:
            size, columns = spaces[node]
            near = [other for other in nodes if other in needs[node] or node in needs[other]]
            if columns == 1:
                wide = [spaces[other] for other in near if spaces[other][1] != 1]
                fits = (space for space in wide if same(product(space), size) or same(space[0], size))
                spaces[node] = next(fits, spaces[node])
        return spaces

    def _may_join(self, node: Node, builder: Builder, builders: list[Builder]) -> bool:
        """Whether ``node`` needs nothing that a later kernel stores."""
        later = builders[builders.index(builder) + 1 :]
        made = {stored for other in later for stored in other.nodes}
        return not (self.needs(node) & made)
