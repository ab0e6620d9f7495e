"""What differs between two traces, fusions taken apart: a line that is fused now is the line that it was.

Lines are paired by :mod:`thunderfx.trace.pairing`, so that renumbered names, reordered independent lines and moved
source lines give no difference, and an inserted line is one difference, not one for every line after it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thunderfx.trace.align import longest_increasing
from thunderfx.trace.bound_symbol import BoundSymbol
from thunderfx.trace.pairing import Pairing, structural_order
from thunderfx.trace.printer import line_comment, one_line, print_arg, print_line
from thunderfx.trace.structure import Interner, Structure, structure
from thunderfx.trace.trace import TraceCtx
from thunderfx.trace.unfuse import unfused


class DiffLine(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One side of an entry. Texts are escaped (:func:`one_line`) and empty far from any change."""

    index: int  #: position among the bound symbols of the trace without fusions, inputs, or 0 for the outputs
    text: str = ""
    comment: str = ""  #: types, executor, tags
    executor: str = ""
    origin: str = ""  #: module path and user's source line


class DiffEntry(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of either trace or of both.

    ``kind`` is ``equal``, ``added``, ``removed`` or ``changed``; ``part`` is ``input``, ``line`` or ``output``.
    ``aspects`` says what changed: ``type``, ``arguments``, ``executor``, ``tags``, ``members``, ``module``.
    """

    kind: str
    part: str
    before: DiffLine | None = None
    after: DiffLine | None = None
    aspects: tuple[str, ...] = ()
    moved: bool = False


class TraceDiff(msgspec.Struct, frozen=True, omit_defaults=True):
    """Entries in reading order: inputs, lines, outputs. ``renamed_modules`` holds pairs of module paths whose lines
    differ in nothing else; those lines are equal."""

    entries: tuple[DiffEntry, ...]
    renamed_modules: tuple[tuple[str, str], ...] = ()
    added: int = 0
    removed: int = 0
    changed: int = 0
    equal: int = 0

    @property
    def only_executor(self) -> int:
        """Number of lines of which nothing changed but what runs them."""
        return sum(entry.aspects == ("executor",) for entry in self.entries)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.changed or self.renamed_modules)

    def without_equal(self) -> TraceDiff:
        """A copy that holds the differences only; the counts stay."""
        return msgspec.structs.replace(self, entries=tuple(e for e in self.entries if e.kind != "equal"))

    def hunks(self, context: int = 1) -> list[list[DiffEntry]]:
        """Differences with up to ``context`` equal entries around them; close ones share a hunk."""
        shown = sorted(_near_changes(self.entries, context))
        out: list[list[DiffEntry]] = []
        last = -2
        for i in shown:
            if i != last + 1:
                out.append([])
            out[-1].append(self.entries[i])
            last = i
        return out


def diff_traces(before: TraceCtx, after: TraceCtx, *, context: int = 3) -> TraceDiff:
    """Compare two traces; equal entries within ``context`` of a difference carry their text."""
    interner = Interner()
    a, b = structure(unfused(before), interner), structure(unfused(after), interner)
    swap = structural_order(a, b, interner) > 0
    # One order whichever trace comes first, so that diff(b, a) mirrors diff(a, b).
    pairing = Pairing(b, a, interner) if swap else Pairing(a, b, interner)
    pairing.run()
    return _assemble(pairing, swap, context)


# -- entries


def _renames(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Module paths that map to one other path each, both ways."""
    there: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for x, y in set(pairs):
        there.setdefault(x, set()).add(y)
        back.setdefault(y, set()).add(x)
    return {(x, y) for x, y in set(pairs) if x != y and len(there[x]) == 1 == len(back[y])}


def _assemble(p: Pairing, swap: bool, context: int) -> TraceDiff:
    """Entries from the pairing; ``swap``: the first trace of the pairing is the one after."""
    a, b = p.a, p.b
    pairs = [(i, j) for i, j in enumerate(p.lines) if j >= 0]
    aspects = {(i, j): found for i, j in pairs if (found := p.line_aspects(i, j))}
    renames = _renames([(a.parts[i].module, b.parts[j].module) for i, j in pairs])
    used_renames = set()
    for (i, j), found in list(aspects.items()):
        rename = (a.parts[i].module, b.parts[j].module)
        if "module" in found and rename in renames:
            used_renames.add(rename)
            aspects[i, j] = tuple(name for name in found if name != "module")
    in_order = [pairs[k] for k in longest_increasing([j for _, j in pairs])]
    if swap:
        pairs = sorted((j, i) for i, j in pairs)
        in_order = [(j, i) for i, j in in_order]
        aspects = {(j, i): found for (i, j), found in aspects.items()}
        inputs = [-1] * len(b.inputs)
        for i, j in enumerate(p.inputs):
            if j >= 0:
                inputs[j] = i
        a, b = b, a
    else:
        inputs = p.inputs
    rows = [("input", i, j, _input_aspects(a, b, i, j)) for i, j in _merge(inputs, len(b.inputs))]
    partner = [-1] * len(a.lines)
    for i, j in pairs:
        partner[i] = j
    rows += [("line", i, j, aspects.get((i, j), ())) for i, j in _merge(partner, len(b.lines), in_order)]
    rows.append(("output", 0, 0, _output_aspects(p)))
    kinds = [_kind(i, j, found) for _, i, j, found in rows]
    near = _near([k for k, kind in enumerate(kinds) if kind != "equal"], len(rows), context)
    kept = set(in_order)
    entries = []
    for k, (kind, (part, i, j, found)) in enumerate(zip(kinds, rows, strict=True)):
        moved = part == "line" and i >= 0 and j >= 0 and (i, j) not in kept
        before = _side(a, part, i, k in near) if i >= 0 else None
        after = _side(b, part, j, k in near) if j >= 0 else None
        entries.append(DiffEntry(kind, part, before, after, found, moved))
    counts = {name: kinds.count(name) for name in ("added", "removed", "changed", "equal")}
    renamed = sorted((y, x) if swap else (x, y) for x, y in used_renames)
    return TraceDiff(tuple(entries), tuple(renamed), **counts)


def _merge(partner: Sequence[int], m: int, in_order: Sequence[tuple[int, int]] | None = None) -> list[tuple[int, int]]:
    """Rows in reading order: between pairs that are in order, first what is gone, then what is new or moved here."""
    taken = {j: i for i, j in enumerate(partner) if j >= 0}
    if in_order is None:
        pairs = sorted((i, j) for j, i in taken.items())
        in_order = [pairs[k] for k in longest_increasing([j for _, j in pairs])]
    out: list[tuple[int, int]] = []
    a = b = 0
    for i, j in [*in_order, (len(partner), m)]:
        out += [(k, -1) for k in range(a, i) if partner[k] < 0]
        out += [(taken.get(k, -1), k) for k in range(b, j)]
        if j < m:
            out.append((i, j))
        a, b = i + 1, j + 1
    return out


def _kind(i: int, j: int, aspects: tuple[str, ...]) -> str:
    if i < 0:
        return "added"
    if j < 0:
        return "removed"
    return "changed" if aspects else "equal"


def _input_aspects(a: Structure, b: Structure, i: int, j: int) -> tuple[str, ...]:
    if i < 0 or j < 0 or a.input_keys[i] == b.input_keys[j]:
        return ()
    (source_a, type_a), (source_b, type_b) = a.input_keys[i], b.input_keys[j]
    return tuple(name for name, is_so in (("source", source_a != source_b), ("type", type_a != type_b)) if is_so)


def _output_aspects(p: Pairing) -> tuple[str, ...]:
    same = p.a.output_skeleton == p.b.output_skeleton and len(p.a.output_uses) == len(p.b.output_uses)
    return () if same and not p.operands_differ(p.a.output_uses, p.b.output_uses) else ("arguments",)


def _near(changes: Sequence[int], n: int, context: int) -> set[int]:
    out: set[int] = set()
    for i in changes:
        out.update(range(max(0, i - context), min(n, i + context + 1)))
    return out


def _near_changes(entries: Sequence[DiffEntry], context: int) -> set[int]:
    return _near([i for i, entry in enumerate(entries) if entry.kind != "equal"], len(entries), context)


def _side(s: Structure, part: str, at: int, with_text: bool) -> DiffLine:
    if part == "output":
        return DiffLine(0, f"return {one_line(print_arg(s.trace.outputs))}" if with_text else "")
    if part == "input":
        if not with_text:
            return DiffLine(at)
        var = s.inputs[at]
        grad = " requires_grad" if getattr(var.type, "requires_grad", False) else ""
        return DiffLine(at, f'{var.name}: "{one_line(str(var.type))}"{grad}', one_line(var.source))
    index = s.indices[at]
    line = s.lines[at]
    if not with_text:
        return DiffLine(index, executor=line.executor)
    return DiffLine(index, one_line(print_line(line)), line_comment(line), line.executor, _origin_text(s.trace, line))


def _origin_text(trace: TraceCtx, line: BoundSymbol) -> str:
    origin = trace.origin_of(line)
    return "" if origin is None else one_line(str(origin))
