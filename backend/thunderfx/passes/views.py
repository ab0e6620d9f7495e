"""Removal of views that do nothing in a program that runs below autograd."""

from __future__ import annotations

from thunderfx.passes.effects import mutated
from thunderfx.trace import BoundSymbol, Ref, TraceCtx
from thunderfx.trace.bound_symbol import map_names
from thunderfx.trace.printer import returned_names

_DETACH = "aten.detach.default"
_TRANSPOSE = "aten.t.default"


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
