"""Common subexpression elimination."""

from __future__ import annotations

from typing import Any

from thunderfx.passes.effects import escaping, has_effect, is_repeatable, mutated
from thunderfx.trace import BoundSymbol, TraceCtx
from thunderfx.trace.bound_symbol import map_names
from thunderfx.trace.values import Arg, DictArg, ListArg, SliceArg, TupleArg


def cse(trace: TraceCtx) -> TraceCtx:
    """Replace a line that repeats an earlier one by the earlier one's outputs.

    Never merged: random lines and lines with effects; lines of which both results leave the trace (the caller may
    change one in place); values that are changed in place here. A line with effects ends all earlier candidates.
    """
    leaving = escaping(trace)
    written = mutated(trace)
    rename: dict[str, str] = {}
    known: dict[Any, BoundSymbol] = {}
    lines: list[BoundSymbol] = []
    for original in trace.bound_symbols:
        line = original.renamed(rename)
        if has_effect(line):
            known.clear()
        elif is_repeatable(line) and not _any_in(line, written):
            key = _key(line)
            earlier = known.get(key)
            if earlier is not None and not (_any_in(line, leaving) and _any_in(earlier, leaving)):
                merged = _merge(earlier, line, rename)
                if merged:
                    continue
            known.setdefault(key, line)
        lines.append(line)
    if len(lines) == len(trace.bound_symbols):
        return trace
    return trace.replace(bound_symbols=tuple(lines), outputs=map_names(trace.outputs, rename))


def _key(line: BoundSymbol) -> Any:
    kwargs = tuple((key, _exact(value)) for key, value in line.kwargs)
    return (line.symbol, tuple(map(_exact, line.args)), kwargs, line.executor, line.unpack)


def _exact(arg: Arg) -> Any:
    """A key that tells ``1``, ``1.0`` and ``True`` apart, and ``0.0`` and ``-0.0``."""
    if isinstance(arg, (ListArg, TupleArg)):
        return (type(arg), tuple(map(_exact, arg.items)))
    if isinstance(arg, DictArg):
        return (DictArg, tuple((_exact(key), _exact(value)) for key, value in arg.items))
    if isinstance(arg, SliceArg):
        return (SliceArg, _exact(arg.start), _exact(arg.stop), _exact(arg.step))
    return (type(arg), repr(arg) if isinstance(arg, float) else arg)


def _any_in(line: BoundSymbol, names: set[str]) -> bool:
    return any(var.name in names for var in line.defines())


def _merge(earlier: BoundSymbol, line: BoundSymbol, rename: dict[str, str]) -> bool:
    """Map the outputs of ``line`` to those of ``earlier``; not possible where ``earlier`` did not name one."""
    if len(earlier.outputs) != len(line.outputs):
        return False
    pairs = [(old, new) for old, new in zip(line.outputs, earlier.outputs, strict=True) if old is not None]
    if any(new is None or new.type != old.type for old, new in pairs):
        return False
    rename.update((old.name, new.name) for old, new in pairs if new is not None)
    return True
