"""Removal of views that do nothing in a program that runs below autograd."""

from __future__ import annotations

from collections import Counter

import msgspec

from thunderfx.passes.effects import mutated
from thunderfx.trace import BoundSymbol, ListArg, Ref, TensorType, TraceCtx
from thunderfx.trace.bound_symbol import map_names
from thunderfx.trace.printer import returned_names

_DETACH = "aten.detach.default"
_TRANSPOSE = "aten.t.default"
_SUM = "aten.sum.dim_IntList"
_VIEW = "aten.view.default"


def simplify_views(trace: TraceCtx) -> TraceCtx:
    """Do without the views that the program can do without."""
    return sum_without_view(remove_noop_views(trace))


def remove_noop_views(trace: TraceCtx) -> TraceCtx:
    """Use the input of ``detach``, and of a transpose of a transpose, in place of its result.

    A returned result stays a tensor of its own where its base is an input, is returned too, or is changed in place:
    the caller may tell the two apart.
    """
    returned = returned_names(trace)
    inputs = {var.name for var in trace.inputs}
    written = mutated(trace)
    rename: dict[str, str] = {}
    transposed: dict[str, str] = {}
    lines: list[BoundSymbol] = []
    for original in trace.bound_symbols:
        line = original.renamed(rename)
        base = _base(line, transposed)
        if base is not None:
            name = line.outputs[0].name  # type: ignore[union-attr]
            if name not in returned:
                rename[name] = base
                continue
            if base not in returned and base not in inputs and base not in written:
                rename[name] = base
                returned.add(base)
                continue
        if line.symbol == _TRANSPOSE and len(line.outputs) == 1 and line.outputs[0] is not None:
            transposed[line.outputs[0].name] = next(line.uses())
        lines.append(line)
    if not rename:
        return trace
    return trace.replace(bound_symbols=tuple(lines), outputs=map_names(trace.outputs, rename))


def _base(line: BoundSymbol, transposed: dict[str, str]) -> str | None:
    """The value that the line's result equals, if it is a view that does nothing."""
    if len(line.args) != 1 or line.kwargs or not isinstance(line.args[0], Ref) or line.outputs[:1] in ((), (None,)):
        return None
    name = line.args[0].name
    if line.symbol == _DETACH:
        return name
    return transposed.get(name) if line.symbol == _TRANSPOSE else None


def sum_without_view(trace: TraceCtx) -> TraceCtx:
    """Have ``sum`` drop the dimensions where it kept them for a ``view`` to drop: the gradient of a bias."""
    uses = Counter(name for line in trace.bound_symbols for name in line.uses())
    returned = returned_names(trace)
    sums: dict[str, int] = {}
    lines: list[BoundSymbol | None] = list(trace.bound_symbols)
    for number, line in enumerate(trace.bound_symbols):
        if line.symbol == _SUM and len(line.args) == 3 and line.args[2] is True and not line.kwargs:
            sums |= {var.name: number for var in line.defines() if uses[var.name] == 1 and var.name not in returned}
        elif line.symbol == _VIEW and isinstance(line.args[0], Ref) and line.args[0].name in sums:
            made = sums[line.args[0].name]
            total = trace.bound_symbols[made]
            dims, kept, viewed = total.args[1], total.outputs[0], line.outputs[0]
            if not isinstance(dims, ListArg) or not dims.items or kept is None or viewed is None:
                continue
            if not isinstance(kept.type, TensorType) or not isinstance(viewed.type, TensorType):
                continue
            rank = len(kept.type.shape)
            gone = {dim % rank for dim in dims.items if isinstance(dim, int)}
            if viewed.type.shape != tuple(size for dim, size in enumerate(kept.type.shape) if dim not in gone):
                continue
            lines[made] = msgspec.structs.replace(total, args=total.args[:2], outputs=line.outputs)
            lines[number] = None
    kept_lines = tuple(line for line in lines if line is not None)
    return trace if len(kept_lines) == len(lines) else trace.replace(bound_symbols=kept_lines)
