"""A plan as what runs: it allocates, launches the kernels, and returns the region's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from thunderfx.executors.triton.cost import schedule
from thunderfx.executors.triton.launch import full_source, launcher, programs
from thunderfx.executors.triton.nodes import Node, Unsupported, numel, shape, strides, value_of
from thunderfx.executors.triton.planner import Plan
from thunderfx.executors.triton.sizes import Size, hint, plain, size_of, symbols_in, text_of


class Symbols:
    """Where the values of symbolic sizes are found among the inputs of a region.

    Raises :class:`Unsupported` for a symbol that no input shows, or of which nothing is known.
    """

    def __init__(self, graph: torch.fx.Graph, wanted: Sequence[Size]) -> None:
        self.places: dict[str, tuple[int, int | None]] = {}
        self.hints: dict[str, int] = {}
        for at, node in enumerate(graph.find_nodes(op="placeholder")):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._found(value, at, None)
            elif isinstance(value, torch.Tensor):
                for dim, size in enumerate(value.shape):
                    self._found(size, at, dim)
        for name in symbols_in(wanted):
            if name not in self.places:
                raise Unsupported(f"the size {name} is not that of an input")

    def _found(self, value: Any, at: int, dim: int | None) -> None:
        size = size_of(value)
        if isinstance(size, int) or not size.is_Symbol or not str(size).startswith("s"):
            return
        self.places.setdefault(str(size), (at, dim))
        known = value.node.hint
        self.hints[str(size)] = 2 if known is None else int(known)

    def values(self, args: Sequence[Any]) -> dict[str, int]:
        return {name: int(args[at] if dim is None else args[at].shape[dim]) for name, (at, dim) in self.places.items()}


def symbols_of(plan: Plan, graph: torch.fx.Graph) -> Symbols:
    sizes = [size for node in plan.stored for size in (*shape(node), *strides(node))]
    sizes += [size for kernel in plan.kernels for size in map(_symbol, kernel.symbols)]
    sizes += [size for item in plan.outputs if isinstance(item, Node) for size in _layout(item)]
    return Symbols(graph, sizes)


def _symbol(name: str) -> Size:
    import sympy

    return sympy.Symbol(name)


def _layout(node: Node) -> list[Size]:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return [*shape(node), *strides(node), size_of(value.storage_offset())]
    return [size_of(value)] if isinstance(value, torch.SymInt) else []


def program(
    plan: Plan, graph: torch.fx.Graph, device: torch.device, *, autotune: bool
) -> Callable[[list[Any]], Sequence[Any]]:
    """What runs a region: takes its inputs, which it clears from the list, and returns its outputs."""
    symbols = symbols_of(plan, graph)
    placeholders = {node: at for at, node in enumerate(graph.find_nodes(op="placeholder"))}
    slots = {buffer.name: placeholders[node] for node, buffer in plan.inputs.items()}
    slots |= {buffer.name: len(placeholders) + at for at, buffer in enumerate(plan.stored.values())}
    launches = [
        (launcher(kernel, autotune=autotune), [slots[buffer.name] for buffer in kernel.buffers])
        for kernel in plan.kernels
    ]
    dtypes = [value_of(node).dtype for node in plan.stored]
    layouts = _function(symbols, [(shape(node), strides(node)) for node in plan.stored])
    results, views = _results(plan, placeholders, slots)
    view_layouts = _function(symbols, views)
    is_symbolic = bool(symbols.places)

    def run(args: list[Any]) -> Sequence[Any]:
        known = symbols.values(args) if is_symbolic else {}
        given = tuple(known.values())
        values = list(args)
        args.clear()
        for dtype, (size, stride) in zip(dtypes, layouts(*given), strict=True):
            values.append(torch.empty_strided(size, stride, dtype=dtype, device=device))
        for launch, positions in launches:
            launch([values[at] for at in positions], known)
        layout = view_layouts(*given)
        return [
            value if at is None else _seen(values[at], layout[number]) for number, (at, value) in enumerate(results)
        ]

    return run


def _results(plan: Plan, placeholders: Mapping[Node, int], slots: Mapping[str, int]) -> tuple[list[Any], list[Any]]:
    """For each output the slot of its memory (or a constant), and its shape, strides and offset in that."""
    results: list[Any] = []
    views: list[Any] = []
    for item in plan.outputs:
        if not isinstance(item, Node):
            results.append((None, item))
            views.append(None)
            continue
        if not isinstance(item.meta.get("val"), torch.Tensor):
            raise Unsupported(f"the output {item} is no tensor")
        base = plan.base(item)
        at = placeholders[base] if base in placeholders else slots[plan.stored[base].name]
        results.append((at, None))
        if item is base:
            views.append(None)
        else:
            moved = size_of(value_of(item).storage_offset()) - size_of(value_of(base).storage_offset())
            views.append((shape(item), strides(item), plain(moved)))
    return results, views


def _seen(base: torch.Tensor, layout: Any) -> torch.Tensor:
    if layout is None:
        return base
    size, stride, moved = layout
    return base.as_strided(size, stride, base.storage_offset() + moved)


def _function(symbols: Symbols, sizes: Any) -> Callable[..., Any]:
    """``sizes`` as a function of the symbols' values."""

    def text(item: Any) -> str:
        if isinstance(item, (tuple, list)):
            return f"({''.join(f'{text(each)}, ' for each in item)})"
        return "None" if item is None else text_of(item)

    source = f"lambda {', '.join(symbols.places)}: {text(sizes)}"
    made: Callable[..., Any] = eval(source)
    return made


def text_of_plan(plan: Plan, hints: Mapping[str, int], figures: Sequence[Mapping[str, int]] = ()) -> str:
    """Plan, launch and source of each kernel, for reading; ``figures`` are those of the compiled kernels."""
    parts = []
    for number, kernel in enumerate(plan.kernels):
        chosen = schedule(kernel)
        comment = "\n".join(f"# {line}" for line in str(kernel).splitlines())
        launch = f"# launched with {programs(kernel, chosen, hints)} programs, {chosen}"
        compiled = "".join(f", {value} {name}" for name, value in figures[number].items()) if figures else ""
        parts.append(f"{comment}\n{launch}{compiled}\n{full_source(kernel)}")
    return "\n\n".join(parts)


def statistics(plan: Plan, hints: Mapping[str, int]) -> dict[str, int]:
    """Number of kernels, and bytes that they read and write: each buffer once for each kernel."""
    nodes = {buffer.name: node for node, buffer in (*plan.inputs.items(), *plan.stored.items())}
    moved = sum(
        hint(numel(nodes[buffer.name]), dict(hints)) * value_of(nodes[buffer.name]).dtype.itemsize
        for kernel in plan.kernels
        for buffer in kernel.buffers
    )
    return {"kernels": len(plan.kernels), "bytes": moved}
