"""What passes ask about a line's effects; the answers come from the tags that lowering set."""

from __future__ import annotations

from thunderfx.trace import BoundSymbol, TraceCtx
from thunderfx.trace.bound_symbol import DEL
from thunderfx.trace.printer import returned_names


def has_effect(line: BoundSymbol) -> bool:
    """The line does something besides computing its outputs, so that it must stay where it is."""
    return line.has_tag("mutation") or line.has_tag("effect") or line.has_tag("collective") or line.symbol == DEL


def is_repeatable(line: BoundSymbol) -> bool:
    """A second run of the line gives the same values and changes nothing else."""
    return not has_effect(line) and not line.has_tag("random")


def families(trace: TraceCtx) -> dict[str, set[str]]:
    """For each value that a view line of ``trace`` reads or makes, the values that may share its memory, itself too."""
    groups: dict[str, set[str]] = {}
    for line in trace.bound_symbols:
        if line.has_tag("view"):
            names = {*line.uses(), *(var.name for var in line.defines())}
            merged = max((groups.get(name, set()) for name in names), key=len)
            for name in names:
                group = groups.get(name, {name})
                if group is not merged:
                    merged |= group
                    groups |= dict.fromkeys(group, merged)
            groups |= dict.fromkeys(names, merged)
    return groups


def sharing_with(trace: TraceCtx, names: set[str]) -> set[str]:
    """``names`` and every value that may share memory with one of them through view lines of ``trace``."""
    groups = families(trace)
    return names.union(*(groups[name] for name in names if name in groups))


def escaping(trace: TraceCtx) -> set[str]:
    """Values that share memory with what the trace returns."""
    return sharing_with(trace, returned_names(trace))


def mutated(trace: TraceCtx) -> set[str]:
    """Values that share memory with one that a line may change in place."""
    written: set[str] = set()
    for line in trace.bound_symbols:
        if line.has_tag("mutation") or line.has_tag("effect"):
            written.update(line.uses())
    return sharing_with(trace, written)
