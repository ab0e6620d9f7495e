"""From a graph of primitive operators to kernel plans.

Nothing is computed into memory but what must be: the region's outputs, and reductions that a kernel of another shape
needs. A kernel evaluates what it stores backwards to what it loads; a view only changes the coordinates at which its
operand is evaluated. Reductions over the same split into rows and columns share a kernel with all that is computed of
them (softmax, LayerNorm with its prologue and epilogue).
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from thunderfx.executors.triton.index import Index, flatten, offset, unflatten
from thunderfx.executors.triton.plan import Buffer, Compute, Kernel, Load, Reduce, Store
from thunderfx.executors.triton.pointwise import (
    COMPARISONS,
    EXPRESSIONS,
    FLOAT_ONLY,
    LOGICAL,
    TANH_BELOW_DOUBLE,
    integer_power,
)
from thunderfx.executors.triton.source import triton_type

Node = torch.fx.Node
#: A longer row does not fit into one block.
MOST_COLUMNS = 16384
_REDUCTIONS = {"sum": "sum", "amax": "max", "amin": "min", "mean": "sum", "var_mean": "sum", "var": "sum"}


class Unsupported(Exception):
    """The region holds something that no kernel is generated for; the text says what."""


class _Realize(Exception):
    """A node must be stored by a kernel of its own before the one under construction can be built."""

    def __init__(self, node: Node) -> None:
        super().__init__(str(node))
        self.node = node


def _args(node: Node) -> Any:
    """Arguments, untyped: what stands where is the operator's affair."""
    return node.args


def short_name(node: Node) -> str:
    """``"add"`` for ``aten.add.Tensor``."""
    return str(node.target).split(".")[1] if node.op == "call_function" and "." in str(node.target) else ""


def _value(node: Node) -> torch.Tensor:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise Unsupported(f"{node} is no tensor")
    if any(not isinstance(size, int) for size in value.shape):
        raise Unsupported("symbolic sizes")
    return value


def _dtype(node: Node) -> str:
    return str(_value(node).dtype).removeprefix("torch.")


def _is_reduction(node: Node) -> bool:
    return short_name(node) in _REDUCTIONS


def _reduced(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kept and reduced dimensions of a reduction's operand."""
    operand = _args(node)[0]
    rank = _value(operand).dim()
    dims = _args(node)[1] if len(_args(node)) > 1 else None
    if dims is None or dims == []:
        gone = set(range(rank))
    else:
        gone = {dim % max(rank, 1) for dim in (dims if isinstance(dims, (list, tuple)) else [dims])}
    return tuple(d for d in range(rank) if d not in gone), tuple(sorted(gone))


def _split(node: Node) -> tuple[int, int]:
    """Rows and columns of a reduction."""
    operand = _args(node)[0]
    shape = _value(operand).shape
    kept, gone = _reduced(node)
    return math.prod(shape[d] for d in kept), math.prod(shape[d] for d in gone)


class _ReadsItself(Exception):
    """A kernel would have to load what it stores itself."""


class Plan:
    """Kernels of a region in order. ``stored`` names the buffer of each node that a kernel stores, ``inputs`` those of
    placeholders."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.kernels: list[Kernel] = []
        self.inputs: dict[Node, Buffer] = {}
        for number, node in enumerate(graph.find_nodes(op="placeholder")):
            if isinstance(node.meta.get("val"), torch.Tensor):
                self.inputs[node] = Buffer(f"in{number}", _dtype(node))
        outputs = [self.base(item) for item in _args(graph.output_node())[0] if isinstance(item, Node)]
        self.realized = [node for node in dict.fromkeys(outputs) if node not in self.inputs]
        self.order = {node: at for at, node in enumerate(graph.nodes)}
        while True:
            try:
                self._build()
                break
            except _Realize as e:
                if e.node in self.realized:
                    raise Unsupported(f"{e.node} at coordinates that no kernel gives") from None
                self.realized.append(e.node)

    def base(self, node: Node) -> Node:
        """What ``node`` is a view of, where the region need not store more for that; else itself."""
        at = node
        while short_name(at) in _ALIASES:
            at = _args(at)[0]
        return at if at in self.inputs or _value(at).numel() == _value(node).numel() else node

    def _build(self) -> None:
        self.stored = {node: Buffer(f"out{at}", _dtype(node)) for at, node in enumerate(self.realized)}
        self.kernels = []
        builders: list[_Builder] = []
        ordered = sorted(self.realized, key=self.order.__getitem__)
        spaces = self._spaces(ordered)
        for node in ordered:
            key = spaces[node]
            joined = any(b.key == key and self._may_join(node, b, builders) and b.try_store(node) for b in builders)
            if not joined:
                builders.append(_Builder(self, key, f"kernel{len(builders)}"))
                builders[-1].store(node)
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

    def _space(self, node: Node) -> tuple[int, int]:
        """Rows and columns of the kernel that stores ``node``."""
        reductions = [at for at in self.cone(node) if _is_reduction(at)]
        if not reductions:
            return _value(node).numel(), 1
        splits = {at: _split(at) for at in reductions}
        wanted = splits[reductions[-1]]
        for at, split in splits.items():
            if split != wanted:
                raise _Realize(at)
        if wanted[1] == 0:
            raise Unsupported("a reduction over nothing")
        if wanted[1] > MOST_COLUMNS:
            raise Unsupported(f"a reduction over {wanted[1]} elements")
        return wanted

    def _spaces(self, nodes: list[Node]) -> dict[Node, tuple[int, int]]:
        """The space of each node's kernel. What has no reduction goes with a neighbour that has, if the sizes fit."""
        spaces = {node: self._space(node) for node in nodes}
        needs = {node: self.needs(node) for node in nodes}
        for node in [*nodes, *reversed(nodes)]:
            size, columns = spaces[node]
            near = [other for other in nodes if other in needs[node] or node in needs[other]]
            if columns == 1:
                fitting = [spaces[other] for other in near if spaces[other][1] > 1 and math.prod(spaces[other]) == size]
                spaces[node] = fitting[0] if fitting else spaces[node]
        return spaces

    def _may_join(self, node: Node, builder: _Builder, builders: list[_Builder]) -> bool:
        """Whether ``node`` needs nothing that a later kernel stores."""
        later = builders[builders.index(builder) + 1 :]
        made = {stored for other in later for stored in other.nodes}
        return not (self.needs(node) & made)


class _Builder:
    def __init__(self, plan: Plan, key: tuple[int, int], name: str) -> None:
        self.plan = plan
        self.key = key
        self.kernel = Kernel(name, *key)
        self.nodes: list[Node] = []
        self.row = Index.variable("m", key[0])
        self.column = Index.variable("n", key[1])
        self.memo: dict[Any, str] = {}
        self.condition = ""
        self.current: Node | None = None  #: what is being stored; it is computed, not loaded

    # -- stores

    def try_store(self, node: Node) -> bool:
        """Store ``node`` too, unless that would load what this kernel stores."""
        steps, memo = len(self.kernel.steps), dict(self.memo)
        try:
            self.store(node)
            return True
        except _ReadsItself:
            del self.kernel.steps[steps:]
            self.memo, self.condition = memo, ""
            return False

    def store(self, node: Node) -> None:
        shape, size = tuple(_value(node).shape), _value(node).numel()
        rows, columns = self.key
        if size == rows:
            coordinates, per_row = unflatten(self.row, shape), True
        elif size == rows * columns:
            coordinates, per_row = unflatten(self.row * columns + self.column, shape), False
        else:
            raise _Realize(self._last_reduction(node))
        self.current = node
        var = self.evaluate(node, coordinates)
        place = offset(coordinates, _value(node).stride())
        self.kernel.steps.append(Store(self.plan.stored[node], place, var, per_row))
        self.nodes.append(node)

    def _last_reduction(self, node: Node) -> Node:
        found = [at for at in self.plan.cone(node) if _is_reduction(at) and at is not node]
        if not found:
            raise Unsupported(f"{node} has a shape that its reductions do not give")
        return found[-1]

    # -- values

    def fresh(self) -> str:
        return f"v{len(self.memo)}"

    def compute(self, key: Any, expression: str) -> str:
        var = self.memo.get(key)
        if var is None:
            var = self.memo[key] = self.fresh()
            self.kernel.steps.append(Compute(var, expression))
        return var

    def evaluate(self, node: Node, coordinates: tuple[Index, ...]) -> str:
        """Variable that holds ``node`` at ``coordinates``, in the dtype in which it is computed."""
        key = (node, coordinates, self.condition)
        known = self.memo.get(key)
        if known is not None:
            return known
        buffer = self.plan.inputs.get(node) or self.plan.stored.get(node)
        if node in self.nodes:
            raise _ReadsItself
        if buffer is not None and node is not self.current:
            var = self.memo[key] = self.fresh()
            place = offset(coordinates, _value(node).stride())
            self.kernel.steps.append(Load(var, buffer, place, self.condition))
            return var
        name = short_name(node)
        view = _taken if node.target is operator.getitem else _VIEWS.get(name)
        if view is not None:
            var = self.evaluate(*view(node, coordinates))
        elif name in _REDUCTIONS:
            var = self.reduction(node, coordinates)
        elif name == "cat":
            var = self.concatenation(node, coordinates)
        elif name in ("slice_scatter", "select_scatter", "constant_pad_nd"):
            var = self.written(node, name, coordinates)
        else:
            var = self.compute(key, self.expression(node, name, coordinates))
        self.memo[key] = var
        return var

    def expression(self, node: Node, name: str, coordinates: tuple[Index, ...]) -> str:
        dtype = _dtype(node)
        if name in ("full", "scalar_tensor", "full_like", "zeros_like", "ones_like", "zeros", "ones", "new_zeros"):
            value = {"scalar_tensor": 0, "full": 1, "full_like": 1}.get(name)
            filled = _args(node)[value] if value is not None else float("ones" in name)
            sides = 2 if self.key[1] > 1 else 1
            return f"tl.full([1] * {sides}, {self.scalar(filled, dtype)}, {triton_type(dtype)})"
        if name in ("iota", "arange"):
            start, step = node.kwargs.get("start", 0), node.kwargs.get("step", 1)
            if name == "arange":
                start, step = 0, 1
                if not str(node.target).endswith("default"):
                    raise Unsupported(str(node.target))
            return (
                f"({coordinates[0]}).to({triton_type(dtype)}) * {step} + {start}"
                if coordinates[0].terms
                else str(start)
            )
        if name in ("detach", "clone", "_to_copy", "convert_element_type", "contiguous", "alias", "lift_fresh_copy"):
            source = _args(node)[0]
            return self.cast(self.evaluate(source, coordinates), _dtype(source), dtype)
        if name in COMPARISONS:
            types = [_value(arg) if isinstance(arg, Node) else arg for arg in _args(node)[:2]]
            promoted = str(torch.result_type(*types)).removeprefix("torch.")
            return COMPARISONS[name].format(
                *(self.operand(arg, coordinates, node, promoted) for arg in _args(node)[:2])
            )
        if name in LOGICAL:
            return LOGICAL[name].format(*(self.operand(arg, coordinates, node, "bool") for arg in _args(node)))
        if name == "where":
            condition, yes, no = _args(node)
            parts = [self.operand(condition, coordinates, node, "bool")]
            parts += [self.operand(arg, coordinates, node, dtype) for arg in (yes, no)]
            return f"tl.where({', '.join(parts)})"
        if (
            name == "pow"
            and isinstance(_args(node)[1], (int, float))
            and float(_args(node)[1]) in (0.5, 1.0, 2.0, 3.0, -1.0, -2.0)
        ):
            base = self.operand(_args(node)[0], coordinates, node, dtype)
            exponent = float(_args(node)[1])
            return f"tl.sqrt({base})" if exponent == 0.5 else integer_power(base, int(exponent))
        if name in ("clamp", "clamp_min", "clamp_max"):
            return self.clamped(node, name, coordinates, dtype)
        if name in ("div", "true_divide"):
            if len(_args(node)) > 2 or node.kwargs or not _value(node).is_floating_point():
                raise Unsupported("rounding division")
            a, b = (self.operand(arg, coordinates, node, dtype) for arg in _args(node)[:2])
            return f"{a} / {b}"
        if name in ("bitwise_and", "bitwise_or", "bitwise_not"):
            sign = {"bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_not": "~{0}"}[name]
            if dtype == "bool" and name == "bitwise_not":
                sign = "{0} == 0"
            return sign.format(*(self.operand(arg, coordinates, node, dtype) for arg in _args(node)))
        if name == "fma":
            a, b, c = (self.operand(arg, coordinates, node, dtype) for arg in _args(node))
            return f"{a} * {b} + {c}"
        if name not in EXPRESSIONS:
            raise Unsupported(str(node.target))
        if name in FLOAT_ONLY and not _value(node).is_floating_point():
            raise Unsupported(f"{node.target} of {dtype}")
        if name in ("add", "sub") and dtype == "bool":
            raise Unsupported(f"{node.target} of bool")
        parts = [self.operand(arg, coordinates, node, dtype) for arg in _args(node)[:2]]
        alpha = node.kwargs.get("alpha", 1)
        if name in ("add", "sub") and alpha != 1:
            parts[1] = f"({parts[1]} * {self.scalar(alpha, dtype)})"
        if name == "mul" and dtype == "bool":
            return f"{parts[0]} & {parts[1]}"
        if name == "tanh" and dtype != "float64":
            return TANH_BELOW_DOUBLE.format(*parts)
        return EXPRESSIONS[name].format(*parts)

    def clamped(self, node: Node, name: str, coordinates: tuple[Index, ...], dtype: str) -> str:
        value = self.operand(_args(node)[0], coordinates, node, dtype)
        bounds = [*_args(node)[1:], None, None]
        least, most = {"clamp": bounds[:2], "clamp_min": [bounds[0], None], "clamp_max": [None, bounds[0]]}[name]
        out = value
        for bound, sign in ((least, "<"), (most, ">")):
            if bound is not None:
                limit = self.operand(bound, coordinates, node, dtype)
                out = f"tl.where({value} {sign} {limit}, {limit}, {out})"
        return out

    def operand(self, arg: Any, coordinates: tuple[Index, ...], node: Node, dtype: str) -> str:
        """An argument of ``node`` at the coordinates that broadcasting gives it, in the dtype of the computation."""
        if not isinstance(arg, Node):
            return self.scalar(arg, dtype)
        shape = _value(arg).shape
        inner = coordinates[len(coordinates) - len(shape) :]
        inner = tuple(Index() if size == 1 else at for size, at in zip(shape, inner, strict=True))
        return self.cast_var(self.evaluate(arg, inner), _dtype(arg), dtype)

    def cast_var(self, var: str, given: str, wanted: str) -> str:
        if triton_type(given) == triton_type(wanted):
            return var
        return self.compute(("cast", var, triton_type(wanted)), self.cast(var, given, wanted))

    def cast(self, var: str, given: str, wanted: str) -> str:
        if triton_type(given) == triton_type(wanted):
            return var
        if wanted == "bool":
            return f"{var} != 0"
        return f"{var}.to({triton_type(wanted)})"

    def scalar(self, value: Any, dtype: str) -> str:
        """A number as a constant of ``dtype``."""
        if not isinstance(value, (bool, int, float)):
            raise Unsupported(f"the argument {value!r}")
        if dtype == "bool":
            text = "1" if value else "0"
        elif dtype.startswith(("float", "bfloat")):
            number = float(value)
            text = repr(number) if math.isfinite(number) else f"float('{number}')"
            text = f"({text})" if number < 0 else text
        else:
            text = str(int(value)) if value >= 0 else f"({int(value)})"
        return text

    # -- reductions and concatenation

    def reduction(self, node: Node, coordinates: tuple[Index, ...]) -> str:
        operand = _args(node)[0]
        shape = _value(operand).shape
        kept, gone = _reduced(node)
        if _split(node) != self.key or self.condition:
            raise _Realize(node)
        rows = unflatten(self.row, [shape[d] for d in kept])
        columns = unflatten(self.column, [shape[d] for d in gone])
        has_all = len(coordinates) == len(shape)  # keepdim
        here = tuple(coordinates[d] for d in kept) if has_all and gone else coordinates
        if tuple(here) != rows:
            raise _Realize(node)
        inner = [Index()] * len(shape)
        for d, at in (*zip(kept, rows, strict=True), *zip(gone, columns, strict=True)):
            inner[d] = at
        name, dtype = short_name(node), _dtype(node)
        value = self.cast_var(self.evaluate(operand, tuple(inner)), _dtype(operand), dtype)
        return self.reduced(node, name, value, dtype)

    def reduced(self, node: Node, name: str, value: str, dtype: str) -> str:
        key = ("reduced", node)
        if key in self.memo:
            return self.memo[key]
        kind = _REDUCTIONS[name]
        if name not in ("sum", "mean", "amax", "amin"):
            raise Unsupported(str(node.target))
        neutral = "0" if kind == "sum" else f"float('{'-inf' if kind == 'max' else 'inf'}')"
        if self.key[1] == 1:  # of one value
            self.memo[key] = value
            return value
        if kind != "sum" and not dtype.startswith(("float", "bfloat")):
            raise Unsupported(f"{node.target} of {dtype}")
        var = self.memo[key] = self.fresh()
        self.kernel.steps.append(Reduce(var, kind, value, neutral))
        if name == "mean":
            scaled = self.compute(("mean", node), f"{var} / {self.key[1]}")
            self.memo[key] = scaled
            return scaled
        return var

    def concatenation(self, node: Node, coordinates: tuple[Index, ...]) -> str:
        """Each part is read where the coordinate lies in it; below 0 and beyond its end it reads nothing."""
        parts = _args(node)[0]
        dim = int(_args(node)[1]) if len(_args(node)) > 1 else 0
        at = dim % len(coordinates)
        dtype, start, out, outer = _dtype(node), 0, "", self.condition
        for part in parts:
            size = _value(part).shape[at]
            if not size:
                continue
            where = f"(({coordinates[at]}) >= {start}) & (({coordinates[at]}) < {start + size})"
            self.condition = self.compute(("where", where, outer), f"({where})" + (f" & {outer}" if outer else ""))
            inner = (*coordinates[:at], coordinates[at] + -start, *coordinates[at + 1 :])
            value = self.cast_var(self.evaluate(part, inner), _dtype(part), dtype)
            inside, self.condition = self.condition, outer
            out = f"tl.where({inside}, {value}, {out})" if out else value
            start += size
        return self.compute((node, coordinates, outer), out)

    def written(self, node: Node, name: str, coordinates: tuple[Index, ...]) -> str:
        """A tensor with another written into a part of it: which one is read depends on the coordinates."""
        args, dtype = _args(node), _dtype(node)
        shape = _value(node).shape
        if name == "constant_pad_nd":
            source, pads = args[0], list(args[1])
            base = self.scalar(args[2] if len(args) > 2 else 0, dtype)
            inner, tests = list(coordinates), []
            for number in range(len(pads) // 2):
                dim = len(shape) - 1 - number
                before = pads[2 * number]
                inner[dim] = coordinates[dim] + -before
                size = _value(source).shape[dim]
                tests.append(f"(({coordinates[dim]}) >= {before}) & (({coordinates[dim]}) < {before + size})")
            return self.chosen(node, source, tuple(inner), " & ".join(tests), base)
        source = args[1]
        base = self.operand(args[0], coordinates, node, dtype)
        if name == "select_scatter":
            dim, index = args[2] % len(shape), args[3] % shape[args[2]]
            inner_coordinates = (*coordinates[:dim], *coordinates[dim + 1 :])
            return self.chosen(node, source, inner_coordinates, f"({coordinates[dim]}) == {index}", base)
        dim, first, end, step = _bounds(node, args[2:], shape)
        at = coordinates[dim]
        test = f"(({at}) >= {first}) & (({at}) < {end})"
        moved = at + -first
        if step > 1:
            raise Unsupported("a slice with a step is written to")
        return self.chosen(node, source, (*coordinates[:dim], moved, *coordinates[dim + 1 :]), test, base)

    def chosen(self, node: Node, source: Node, inner: tuple[Index, ...], test: str, base: str) -> str:
        """``source`` where ``test`` holds, elsewhere ``base``."""
        outer = self.condition
        self.condition = self.compute(("where", test, outer), f"({test})" + (f" & {outer}" if outer else ""))
        value = self.cast_var(self.evaluate(source, inner), _dtype(source), _dtype(node))
        inside, self.condition = self.condition, outer
        return self.compute((node, inner, "chosen", outer), f"tl.where({inside}, {value}, {base})")


# -- views: coordinates of the result -> operand and its coordinates


def _reshape(node: Node, coordinates: tuple[Index, ...]) -> tuple[Node, tuple[Index, ...]]:
    source: Any = _args(node)[0]
    return source, unflatten(flatten(coordinates, _value(node).shape), _value(source).shape)


def _permute(node: Node, coordinates: tuple[Index, ...]) -> tuple[Node, tuple[Index, ...]]:
    source: Any = _args(node)[0]
    dims: Any = _args(node)[1]
    out = [Index()] * len(coordinates)
    for at, dim in zip(coordinates, dims, strict=True):
        out[int(dim) % len(coordinates)] = at
    return source, tuple(out)


def _transpose(node: Node, coordinates: tuple[Index, ...]) -> tuple[Node, tuple[Index, ...]]:
    source: Any = _args(node)[0]
    rank = len(coordinates)
    given: list[Any] = list(_args(node)[1:3]) or [0, rank - 1]
    a, b = (int(dim) % rank for dim in given) if rank else (0, 0)
    out = list(coordinates)
    if rank > 1:
        out[a], out[b] = out[b], out[a]
    return source, tuple(out)


def _expand(node: Node, coordinates: tuple[Index, ...]) -> tuple[Node, tuple[Index, ...]]:
    source: Any = _args(node)[0]
    shape = _value(source).shape
    inner = coordinates[len(coordinates) - len(shape) :]
    return source, tuple(Index() if size == 1 else at for size, at in zip(shape, inner, strict=True))


def _slice(node: Node, coordinates: tuple[Index, ...]) -> tuple[Node, tuple[Index, ...]]:
    source: Any = _args(node)[0]
    dim, first, _, step = _bounds(node, _args(node)[1:], _value(source).shape)
    out = list(coordinates)
    out[dim] = coordinates[dim] * step + first
    return source, tuple(out)


def _bounds(node: Node, given: Any, shape: Any) -> tuple[int, int, int, int]:
    """Dimension, start, end and step of a slice, from its arguments after the tensors."""
    rest: tuple[Any, ...] = (0, None, None, 1)[len(given) :]
    dim, start, end, step = (*tuple(given), *rest)
    size = int(shape[dim])

    def within(position: int | None, default: int) -> int:
        if position is None:
            return default
        return max(0, position + size) if position < 0 else min(position, size)

    return int(dim) % len(shape), within(start, 0), within(end, size), int(step)


def _select(node: Node, coordinates: tuple[Index, ...]) -> tuple[Node, tuple[Index, ...]]:
    source: Any = _args(node)[0]
    shape = _value(source).shape
    dim, index = int(_args(node)[1]) % len(shape), int(_args(node)[2])
    return source, (*coordinates[:dim], Index() + index % shape[dim], *coordinates[dim:])


def _taken(node: Node, coordinates: tuple[Index, ...]) -> tuple[Node, tuple[Index, ...]]:
    """One of the pieces of a split tensor."""
    pieces, number = _args(node)
    name = short_name(pieces)
    if name not in ("split", "split_with_sizes", "unbind"):
        raise Unsupported(str(pieces.target))
    source, *given = _args(pieces)
    shape = _value(source).shape
    if name == "unbind":
        dim = int(given[0] if given else 0) % len(shape)
        return source, (*coordinates[:dim], Index() + number, *coordinates[dim:])
    dim = int(given[1] if len(given) > 1 else 0) % len(shape)
    first = number * given[0] if name == "split" else sum(given[0][:number])
    return source, (*coordinates[:dim], coordinates[dim] + first, *coordinates[dim + 1 :])


#: Views that are always of their operand's memory.
_ALIASES = frozenset(
    {"detach", "alias", "view", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "select"}
)
_VIEWS = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"), _reshape),
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
}
SUPPORTED = (
    frozenset(_VIEWS)
    | frozenset(EXPRESSIONS)
    | frozenset(COMPARISONS)
    | frozenset(LOGICAL)
    | {"sum", "mean", "amax", "amin", "where", "pow", "clamp", "clamp_min", "clamp_max", "div", "cat"}
)
