"""A trace without fusions: each line that stands for others is replaced by them."""

from __future__ import annotations

import msgspec

from thunderfx.trace.bound_symbol import BoundSymbol
from thunderfx.trace.trace import TraceCtx


def unfused(trace: TraceCtx) -> TraceCtx:
    """``trace`` with the members of its fusions in their place, to be run by torch; itself where it has none.

    Each member names the executor of its fusion. The objects that ran the fusions are no constants of the result.
    """
    if not any(line.subsymbols for line in trace.bound_symbols):
        return trace
    lines: list[BoundSymbol] = []
    gone: set[str] = set()
    for line in trace.bound_symbols:
        if line.subsymbols:
            gone.add(line.symbol)
            lines += [msgspec.structs.replace(member, executor=line.executor) for member in line.subsymbols]
        else:
            lines.append(line)
    return trace.replace(
        bound_symbols=tuple(lines),
        constants=tuple(const for const in trace.constants if const.name not in gone),
        fusions=(),
    )
