"""One kernel under construction: what it stores is evaluated backwards to what it loads."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from thunderfx.executors.triton import choices, expressions, reductions
from thunderfx.executors.triton.index import Index, offset, unflatten
from thunderfx.executors.triton.nodes import (
    REDUCTIONS,
    Node,
    Unsupported,
    args_of,
    dtype,
    numel,
    shape,
    short_name,
    strides,
)
from thunderfx.executors.triton.plan import Buffer, Compute, Kernel, Load, Store
from thunderfx.executors.triton.sizes import Size, plain, product, same
from thunderfx.executors.triton.source import triton_type
from thunderfx.executors.triton.views import VIEWS, broadcast, taken

#: Steps from what is stored to what is loaded, beyond which a value is stored in between.
MOST_DEPTH = 80
_NAMES = re.compile(r"\bv\d+\b|\bm\b|\bn\b")


class Realize(Exception):
    """A node must be stored by a kernel of its own before the one under construction can be built."""

    def __init__(self, node: Node) -> None:
        super().__init__(str(node))
        self.node = node


class ReadsItself(Exception):
    """A kernel would have to load what it stores itself."""


class Builder:
    """``inputs`` and ``stored`` name the buffers of what need not be computed; ``key`` is rows and columns."""

    def __init__(
        self, inputs: Mapping[Node, Buffer], stored: Mapping[Node, Buffer], key: tuple[Size, Size], name: str
    ) -> None:
        self.inputs = inputs
        self.stored = stored
        self.key = key
        self.kernel = Kernel(name, *key)
        self.nodes: list[Node] = []
        self.reductions: list[Node] = []  #: over the columns of this kernel
        self.row = Index.variable("m", key[0])
        self.column = Index.variable("n", key[1])
        self.memo: dict[Any, str] = {}
        self.condition = ""
        self.current: Node | None = None  #: what is being stored; it is computed, not loaded
        self.depth = 0

    # -- stores

    def try_store(self, node: Node, reductions: Sequence[Node]) -> bool:
        """Store ``node`` too, unless that would load what this kernel stores."""
        steps, memo, depends = len(self.kernel.steps), dict(self.memo), dict(self.kernel.depends)
        known = list(self.reductions)
        try:
            self.store(node, reductions)
            return True
        except ReadsItself:
            self.reductions = known
            del self.kernel.steps[steps:]
            self.memo, self.condition, self.depth, self.kernel.depends = memo, "", 0, depends
            return False

    def store(self, node: Node, reductions: Sequence[Node]) -> None:
        """Store ``node``, for which ``reductions`` over the columns are computed."""
        self.reductions += reductions
        size, rows = numel(node), self.key[0]
        if same(size, rows):
            coordinates, per_row = unflatten(self.row, shape(node)), True
        elif same(size, product(self.key)):
            coordinates, per_row = self._coordinates(node), False
        else:
            raise Unsupported(f"{node} has a shape that its kernel does not give")
        self.current = node
        var = self.evaluate(node, coordinates)
        self.kernel.steps.append(Store(self.stored[node], offset(coordinates, strides(node)), var, per_row))
        self.nodes.append(node)

    def _coordinates(self, node: Node) -> tuple[Index, ...]:
        """Those at which a reduction of this kernel goes over a tensor of the node's shape, if there is one, so that
        the node is computed where its row is known; else in the order of its elements."""
        for reduction in self.reductions:
            if shape(args_of(reduction)[0]) == shape(node):
                return reductions.whole_coordinates(self, reduction)
        return unflatten(self.row * self.key[1] + self.column, shape(node))

    # -- steps

    def fresh(self, depends: frozenset[str]) -> str:
        var = f"v{len(self.kernel.depends)}"
        self.kernel.depends[var] = depends
        return var

    def depends_of(self, text: str) -> frozenset[str]:
        """Loop variables on which an expression depends."""
        found: set[str] = set()
        for name in _NAMES.findall(text):
            found |= self.kernel.depends.get(name, {name})
        return frozenset(found)

    def compute(self, key: Any, expression: str, sizes: Sequence[Size] = ()) -> str:
        var = self.memo.get(key)
        if var is None:
            var = self.memo[key] = self.fresh(self.depends_of(expression))
            self.kernel.steps.append(Compute(var, expression, tuple(sizes)))
        return var

    def index_value(self, index: Index) -> str:
        """A coordinate as a value; a constant one too is a block, as what is compared with it is."""
        text = str(index) if index.atoms() else f"m * 0 + {index}"
        return self.compute(("index", index), text, index.sizes())

    def size_value(self, size: Size) -> str:
        """A size as a value."""
        return self.index_value(Index((), size))

    # -- values

    def evaluate(self, node: Node, coordinates: tuple[Index, ...]) -> str:
        """Variable that holds ``node`` at ``coordinates``, in the dtype in which it is computed."""
        key = (node, coordinates, self.condition)
        known = self.memo.get(key)
        if known is not None:
            return known
        buffer = self.inputs.get(node) or self.stored.get(node)
        if node in self.nodes:
            raise ReadsItself
        if buffer is not None and node is not self.current:
            index = offset(coordinates, strides(node))
            var = self.memo[key] = self.fresh(frozenset(index.atoms()) | self.depends_of(self.condition))
            self.kernel.steps.append(Load(var, buffer, index, self.condition))
            return var
        if node.op != "call_function":
            raise Unsupported(f"{node} is a {node.op}")
        if self.depth > MOST_DEPTH and node is not self.current:
            raise Realize(node)
        self.depth += 1
        name = short_name(node)
        view = taken if node.target is operator.getitem else VIEWS.get(name)
        if view is not None:
            var = self.evaluate(*view(node, coordinates))
        elif name in REDUCTIONS:
            var = self.reduction(node, coordinates)
        elif name in choices.CHOICES:
            var = choices.CHOICES[name](self, node, coordinates)
        else:
            var = self.compute(key, expressions.expression(self, node, name, coordinates))
        self.depth -= 1
        self.memo[key] = var
        return var

    def reduction(self, node: Node, coordinates: tuple[Index, ...]) -> str:
        """A reduction at the rows of this kernel; where it is asked for elsewhere it must have been stored."""
        found = reductions.inner_coordinates(self, node, coordinates)
        if found is None:
            raise Realize(node)
        outer, self.condition = self.condition, ""  # it is the same for a whole row, wherever in it it is used
        var = reductions.reduction(self, node, found)
        self.condition = outer
        return var

    def operand(self, arg: Any, coordinates: tuple[Index, ...], wanted: str) -> str:
        """An argument at the coordinates that broadcasting gives it, in the dtype of the computation."""
        if isinstance(arg, Node) and "val" in arg.meta and not hasattr(arg.meta["val"], "shape"):
            arg = arg.meta["val"]
        if not isinstance(arg, Node):
            return expressions.scalar(self, arg, wanted)
        return self.cast(self.evaluate(arg, broadcast(coordinates, shape(arg))), dtype(arg), wanted)

    def cast(self, var: str, given: str, wanted: str) -> str:
        if triton_type(given) == triton_type(wanted):
            return var
        return self.compute(("cast", var, triton_type(wanted)), expressions.cast(var, given, wanted))

    def under(self, test: str) -> str:
        """The condition under construction, narrowed by ``test``."""
        outer = self.condition
        return self.compute(("under", test, outer), f"{test} & {outer}" if outer else test)

    def at_rows(self, coordinates: tuple[Index, ...], kept: Sequence[Size]) -> bool:
        """Whether coordinates are those of this kernel's rows."""
        return coordinates == unflatten(self.row, [plain(size) for size in kept])
