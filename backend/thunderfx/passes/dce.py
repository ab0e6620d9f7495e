"""Dead code elimination."""

from __future__ import annotations

from thunderfx.passes.effects import has_effect
from thunderfx.trace import BoundSymbol, TraceCtx
from thunderfx.trace.printer import returned_names


def dce(trace: TraceCtx) -> TraceCtx:
    """Remove lines of which nothing is used and that have no effect.

    A random line that nobody uses is kept: eager draws those numbers too, so that later ones differ without it.
    """
    needed = returned_names(trace)
    kept: list[BoundSymbol] = []
    for line in reversed(trace.bound_symbols):
        if has_effect(line) or line.has_tag("random") or any(var.name in needed for var in line.defines()):
            needed.update(line.uses())
            kept.append(line)
    if len(kept) == len(trace.bound_symbols):
        return trace
    return trace.replace(bound_symbols=tuple(reversed(kept)))
