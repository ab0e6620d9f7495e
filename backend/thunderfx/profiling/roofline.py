"""What bounds a line: the device's arithmetic, its memory, or what it costs to start anything at all.

The roofline model of S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model",
CACM 52 (2009), with ceilings that were measured. A line can be above a memory ceiling: what it reads may be in a cache,
and the ceiling is that of the memory behind the caches.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from thunderfx.profiling.costs import Ceilings, LineCost
from thunderfx.trace import BoundSymbol, TensorType, TraceCtx, ValueType
from thunderfx.trace.bound_symbol import DEL


class Limit(msgspec.Struct, frozen=True):
    """``bound`` is ``"compute"``, ``"memory"``, ``"launch"`` (the work takes less than starting it), or ``""``.

    ``ideal_ms`` is the time of the work at the ceiling that bounds it. Rates are those achieved.
    """

    bound: str = ""
    ideal_ms: float | None = None
    intensity: float | None = None  #: FLOPs per byte
    flops_per_s: float | None = None
    bytes_per_s: float | None = None


def limit(cost: LineCost, dtype: str, ceilings: Ceilings | None) -> Limit:
    """What bounds a line of this cost, whose FLOPs are of ``dtype``."""
    flops, moved = work(cost), cost.moved_bytes
    seconds = cost.time_ms / 1e3 if cost.time_ms else None
    flop_rate = flops / seconds if seconds and flops else None
    byte_rate = moved / seconds if seconds and moved else None
    intensity = flops / moved if flops and moved else None
    bound, ideal = "", None
    if ceilings is not None and moved is not None:
        ideal = ideal_ms(cost, dtype, ceilings)
        if ideal is not None:
            by_memory = 1e3 * moved / ceilings.copy_bytes_per_s
            bound = "launch" if ideal < ceilings.launch_ms else "memory" if by_memory >= ideal else "compute"
    return Limit(bound, ideal, intensity, flop_rate, byte_rate)


def work(cost: LineCost) -> int:
    """FLOPs by torch's formula, or else estimated."""
    return (cost.flops or 0) + cost.estimated_flops


def ideal_ms(cost: LineCost, dtype: str, ceilings: Ceilings) -> float | None:
    """Time of the work at the device's ceilings; ``None`` where one that is needed was not measured."""
    peak = ceilings.flops_per_s.get(dtype, 0.0)
    if not ceilings.copy_bytes_per_s or cost.moved_bytes is None or (work(cost) and not peak):
        return None
    by_memory = cost.moved_bytes / ceilings.copy_bytes_per_s
    return 1e3 * max(by_memory, work(cost) / peak if peak else 0.0)


def member_times(whole: LineCost, dtypes: list[str], ceilings: Ceilings | None) -> list[float | None]:
    """An estimate of each member's part of a fusion's time: in proportion to its work at the ceilings.

    Without ceilings in proportion to the bytes that the member would move by itself.
    """
    if whole.time_ms is None:
        return [None] * len(whole.members)
    weights: list[float] = []
    for member, dtype in zip(whole.members, dtypes, strict=True):
        ideal = ideal_ms(member, dtype, ceilings) if ceilings is not None else None
        weights.append(float(member.moved_bytes or 0) if ceilings is None else ideal or 0.0)
    total = sum(weights)
    if not total:
        return [whole.time_ms / len(weights)] * len(weights) if weights else []
    return [whole.time_ms * weight / total for weight in weights]


def dtype_of(line: BoundSymbol, types: Mapping[str, ValueType]) -> str:
    """dtype of a line's arithmetic: of its first tensor operand with one that is not integer, ``""`` for none."""
    for name in line.uses():
        type_ = types.get(name)
        if isinstance(type_, TensorType) and type_.dtype.startswith(("float", "bfloat", "complex")):
            return type_.dtype
    return ""


def flop_dtypes(trace: TraceCtx, lines: tuple[LineCost, ...]) -> set[str]:
    """dtypes of the lines of ``trace`` that have FLOPs: those whose ceiling is needed."""
    types = types_of(trace)
    return {
        dtype_of(member, types)
        for line, cost in zip(trace.bound_symbols, lines, strict=True)
        if line.symbol != DEL
        for member, part in zip(line.subsymbols or (line,), cost.members or (cost,), strict=False)
        if work(part)
    } - {""}


def types_of(trace: TraceCtx) -> dict[str, ValueType]:
    """Type of each name of ``trace``, of members of fusions too."""
    types = {var.name: var.type for var in trace.inputs} | {const.name: const.type for const in trace.constants}
    for line in trace.bound_symbols:
        types |= {var.name: var.type for member in line.subsymbols for var in member.defines()}
        types |= {var.name: var.type for var in line.defines()}
    return types
