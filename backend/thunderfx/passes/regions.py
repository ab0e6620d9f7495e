"""Which lines can run in one call: regions that dataflow connects and that leave no cycle between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from thunderfx.passes.effects import families, has_effect
from thunderfx.trace import TraceCtx


def dependencies(trace: TraceCtx) -> list[list[int]]:
    """For each line the earlier lines that must come before it: those that make its operands and, where memory is
    changed in place, those that read or write the same memory; lines with effects and random lines keep their order."""
    maker: dict[str, int] = {}
    shared = families(trace)
    written: dict[str, int] = {}  #: last line that changed the memory of a name
    touched: dict[str, list[int]] = defaultdict(list)  #: lines that read a name
    last_effect = -1
    out: list[list[int]] = []
    for number, line in enumerate(trace.bound_symbols):
        names = list(dict.fromkeys(line.uses()))
        before = {maker[name] for name in names if name in maker}
        before.update(written[name] for name in names if name in written)
        if line.has_tag("random") or has_effect(line):
            if last_effect >= 0:
                before.add(last_effect)
            last_effect = number
        if line.has_tag("mutation") or line.has_tag("effect"):
            for name in names:
                for other in shared.get(name, (name,)):
                    before.update(touched[other])
                    if other in maker:
                        before.add(maker[other])
                    written[other] = number
        for name in names:
            touched[name].append(number)
        for var in line.defines():
            maker[var.name] = number
        before.discard(number)
        out.append(sorted(before))
    return out


def regions(trace: TraceCtx, fusible: Sequence[bool]) -> list[list[int]]:
    """Numbers of the fusible lines, grouped into regions in order of their first lines.

    A line's level counts how often the longest way to it enters or leaves fusible lines. Every edge between lines of
    different kinds goes to a higher level, so that regions within one level are free of cycles. Where all users of the
    first lines of a region lie in one later region, they join that. Time is linear in lines and edges.
    """
    needs = dependencies(trace)
    count = len(needs)
    level = [0] * count
    users: list[list[int]] = [[] for _ in range(count)]
    for number, before in enumerate(needs):
        for other in before:
            users[other].append(number)
            level[number] = max(level[number], level[other] + (fusible[other] != fusible[number]))
    for number in range(count - 1, -1, -1):
        if not fusible[number] or not users[number]:
            continue
        if any(fusible[other] and level[other] == level[number] for other in needs[number]):
            continue
        latest = min(level[user] - (not fusible[user]) for user in users[number])
        if latest > level[number] and any(fusible[user] and level[user] == latest for user in users[number]):
            level[number] = latest
    return _connected(needs, fusible, level)


def _connected(needs: Sequence[Sequence[int]], fusible: Sequence[bool], level: Sequence[int]) -> list[list[int]]:
    root = list(range(len(needs)))

    def find(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    for number, before in enumerate(needs):
        for other in before:
            if fusible[number] and fusible[other] and level[number] == level[other]:
                a, b = find(number), find(other)
                root[max(a, b)] = min(a, b)
    groups: dict[int, list[int]] = {}
    for number, is_fusible in enumerate(fusible):
        if is_fusible:
            groups.setdefault(find(number), []).append(number)
    return list(groups.values())


def in_order(trace: TraceCtx, groups: Sequence[Sequence[int]]) -> list[int]:
    """An order in which lines and whole groups can run: numbers of lines, and ``-1 - n`` for group ``n``.

    Lines keep their order; a group stands just before the first line that needs it, or at the end.
    """
    needs = dependencies(trace)
    group_of = {number: at for at, group in enumerate(groups) for number in group}
    done: set[int] = set()
    out: list[int] = []

    def unit_of(number: int) -> int:
        return -1 - group_of[number] if number in group_of else number

    def members(unit: int) -> Sequence[int]:
        return groups[-1 - unit] if unit < 0 else (unit,)

    def emit(wanted: int) -> None:
        stack = [(wanted, False)]
        while stack:
            unit, ready = stack.pop()
            if unit in done:
                continue
            if ready:
                done.add(unit)
                out.append(unit)
                continue
            stack.append((unit, True))
            before = {unit_of(other) for number in members(unit) for other in needs[number]} - {unit} - done
            stack += [(other, False) for other in sorted(before, key=lambda u: min(members(u)), reverse=True)]

    for number in range(len(needs)):
        if number not in group_of:
            emit(number)
    for at in range(len(groups)):
        emit(-1 - at)
    return out
