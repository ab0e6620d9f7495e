"""``del`` after the last use, so that memory is free as early as the program allows."""

from __future__ import annotations

from thunderfx.trace import BoundSymbol, Ref, TraceCtx
from thunderfx.trace.bound_symbol import DEL
from thunderfx.trace.printer import returned_names


def insert_dels(trace: TraceCtx) -> TraceCtx:
    """Add a line that deletes the names whose last use is the line before; what is returned stays."""
    used = returned_names(trace)
    constants = {const.name for const in trace.constants}
    lines: list[BoundSymbol] = []
    for line in reversed(trace.bound_symbols):
        names = dict.fromkeys([*line.uses(), *(var.name for var in line.defines())])
        dead = [name for name in names if name not in used and name not in constants]
        if dead:
            lines.append(BoundSymbol(DEL, tuple(map(Ref, dead))))
        used.update(names)
        lines.append(line)
    return trace.replace(bound_symbols=tuple(reversed(lines)))
