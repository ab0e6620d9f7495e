"""Which executor runs which line."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from thunderfx.executors import Executor, FusionExecutor, OperatorExecutor
from thunderfx.passes.effects import has_effect
from thunderfx.trace import BoundSymbol, Constant, OpaqueType, TraceCtx


def place(trace: TraceCtx, executors: Sequence[Executor]) -> TraceCtx:
    """Give each line to the first executor that can run it; ``why`` says which fusion executors refused it.

    A line for which an operator executor has an implementation of its own becomes a call of that, with the line itself
    as its only member.
    """
    objects = {const.name for const in trace.constants}
    constants = list(trace.constants)
    names: dict[Any, str] = {}
    lines: list[BoundSymbol] = []
    for line in trace.bound_symbols:
        line, executor = _claimed(line, executors, objects)
        function = executor.implementation(line) if isinstance(executor, OperatorExecutor) else None
        if function is not None:
            name = names.get(function) or _fresh(f"{executor.name}_{_short(line.symbol)}", trace, constants)
            if function not in names:
                names[function] = name
                constants.append(Constant(name, OpaqueType("function"), function))
            line = msgspec.structs.replace(line, symbol=name, subsymbols=(line,))
        lines.append(line)
    if tuple(lines) == trace.bound_symbols:
        return trace
    return trace.replace(bound_symbols=tuple(lines), constants=tuple(constants))


def _claimed(line: BoundSymbol, executors: Sequence[Executor], objects: set[str]) -> tuple[BoundSymbol, Executor]:
    refusals: list[str] = []
    for executor in executors:
        if isinstance(executor, FusionExecutor):
            reason = refusal(executor, line, objects)
            if not reason:
                break
            refusals.append(f"{executor.name}: {reason}")
        elif isinstance(executor, OperatorExecutor) and executor.can_execute(line):
            break
    tags = line.tags
    if isinstance(executor, OperatorExecutor):
        tags += executor.tags(line)
        later = executors[executors.index(executor) + 1 :]
        refusals += [f"{other.name}: {executor.name} comes before it" for other in later if _is_fusing(other)]
    return msgspec.structs.replace(line, executor=executor.name, why="; ".join(refusals), tags=tags), executor


def _is_fusing(executor: Executor) -> bool:
    return isinstance(executor, FusionExecutor)


def refusal(executor: FusionExecutor, line: BoundSymbol, objects: set[str]) -> str:
    """Why ``line`` cannot be part of a region of ``executor``, ``""`` where it can."""
    if line.has_tag("mutation"):
        return "it changes memory in place"
    if line.has_tag("random"):
        return "it draws random numbers, whose order eager sets"
    if has_effect(line):
        return "it has effects that must stay in order"
    if line.symbol in objects:
        return "it calls an object that only this process knows"
    return said_no(executor, line)


def said_no(executor: FusionExecutor, line: BoundSymbol) -> str:
    """The executor's own refusal, ``""`` for none."""
    answer = executor.can_fuse(line)
    if isinstance(answer, str):
        return answer
    return "" if answer else f"{executor.name} does not run {line.symbol}"


def _short(symbol: str) -> str:
    parts = symbol.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) == 3 else parts[-2] if len(parts) > 2 else parts[-1]


def _fresh(wanted: str, trace: TraceCtx, constants: Sequence[Constant]) -> str:
    taken = {const.name for const in constants} | {var.name for var in trace.inputs}
    taken |= {var.name for line in trace.bound_symbols for var in line.defines()}
    names = (f"{wanted}{suffix}" for suffix in itertools.chain([""], itertools.count()))
    return next(name for name in names if name not in taken)
