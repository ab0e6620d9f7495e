"""Which line of a trace is the counterpart of which line of another: by structure, then corrected by dataflow."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence

from thunderfx.trace.align import align, longest_increasing
from thunderfx.trace.structure import Interner, LineParts, Structure, first_names, wiring

#: Passes of repair by dataflow; one is enough unless many equal lines changed places.
MAX_REPAIRS = 4


def structural_order(a: Structure, b: Structure, interner: Interner) -> int:
    """-1, 0 or 1: an order of structures that does not depend on names; 0 only for the same program."""
    names = {number: key for key, number in interner.numbers.items()} if a.own != b.own else {}
    if len(a.own) != len(b.own):
        return -1 if len(a.own) < len(b.own) else 1
    for x, y in zip(a.own, b.own, strict=True):
        if x != y:
            return -1 if repr(names[x]) < repr(names[y]) else 1
    for left, right in (
        (a.input_keys, b.input_keys),
        (wiring(a), wiring(b)),
        (repr(a.output_skeleton), repr(b.output_skeleton)),
        ([a.definition.get(n, 0) for n in a.output_uses], [b.definition.get(n, 0) for n in b.output_uses]),
    ):
        if left != right:
            return -1 if left < right else 1  # type: ignore[operator]
    return 0


#: Sources that many inputs share, so that they name none of them.
_COMMON_SOURCES = frozenset({"", "constant", "saved for backward", "gradient of an output"})


class Pairing:
    """Partners of inputs and lines of ``a`` in ``b``, and the names that they map to each other."""

    def __init__(self, a: Structure, b: Structure, interner: Interner) -> None:
        self.a, self.b, self.interner = a, b, interner
        self.inputs: list[int] = []
        self.lines: list[int] = []
        self.owner: list[int] = []  #: line of ``a`` that a line of ``b`` is paired with
        self.forward: dict[str, str] = {}
        self.backward: dict[str, str] = {}
        self._first_names: dict[str, str] | None = None
        self._by_operands: dict[tuple[int, tuple[str, ...]], list[int]] | None = None

    def run(self) -> None:
        self._pair_inputs()
        contexts_a, contexts_b = self._contexts()
        self._pair_lines(contexts_a, contexts_b)
        self._settle()
        self._pair_moved(contexts_a, contexts_b)
        if self._pair_changed():
            self._settle()

    # -- inputs

    def _pair_inputs(self) -> None:
        keys = [(self._input_levels(s)) for s in (self.a, self.b)]
        levels = list(zip(*keys, strict=True))
        n, m = len(self.a.inputs), len(self.b.inputs)
        self.inputs = align(levels, n, m)
        taken = set(self.inputs)
        for keys_a, keys_b in levels:  # what moved
            free: dict[int, list[int]] = {}
            for j in range(m - 1, -1, -1):
                if j not in taken:
                    free.setdefault(keys_b[j], []).append(j)
            for i in range(n):
                if self.inputs[i] < 0 and free.get(keys_a[i]):
                    self.inputs[i] = free[keys_a[i]].pop()
                    taken.add(self.inputs[i])
        for i, j in enumerate(self.inputs):
            if j >= 0:
                self._map(self.a.inputs[i].name, self.b.inputs[j].name)

    def _input_levels(self, s: Structure) -> list[list[int]]:
        """Source, type and consumers; source and type; source; kind of consumers."""
        strong: list[list[object]] = [[] for _ in s.inputs]
        weak: list[list[object]] = [[] for _ in s.inputs]
        for own, parts in zip(s.own, s.parts, strict=True):
            for slot, name in enumerate(parts.uses):
                at = -1 - s.definition.get(name, 0)
                if at >= 0:
                    strong[at].append((own, slot))
                    weak[at].append((parts.symbol, parts.module, slot))
        number = self.interner.number
        out: list[list[int]] = [[], [], [], []]
        for i, (source, type_) in enumerate(s.input_keys):
            out[0].append(number(("in0", source, type_, tuple(sorted(strong[i], key=repr)))))
            out[1].append(number(("in1", source, type_)))
            named = "" if source in _COMMON_SOURCES else source
            out[2].append(number(("in2", named) if named else ("lonely", id(s), i)))
            used = weak[i] and not named
            out[3].append(number(("in3", source, tuple(sorted(weak[i], key=repr))) if used else ("lonely", id(s), i)))
        return out

    # -- lines

    def _contexts(self) -> tuple[list[list[int]], list[list[int]]]:
        """Keys of lines with their operands' structure, one and two lines deep."""
        input_a = {i: ("pair", i) for i, j in enumerate(self.inputs) if j >= 0}
        input_b = {j: ("pair", i) for i, j in enumerate(self.inputs) if j >= 0}
        out = []
        number, numbers = self.interner.number, self.interner.numbers
        setdefault = numbers.setdefault
        for side, (s, paired) in enumerate(((self.a, input_a), (self.b, input_b))):
            inputs = [number(("input", *paired.get(i, (side, i)))) for i in range(len(s.inputs))]
            inputs.reverse()  # so that input -1 - i is found by its negative index after the lines
            wires = wiring(s)
            keys = s.own
            levels = []
            for _ in range(2):
                below = [*keys, -1, *inputs]
                keys = [
                    setdefault((own, *[below[at] for at in wire]), len(numbers))
                    for own, wire in zip(s.own, wires, strict=True)
                ]
                levels.append(keys)
            out.append(levels)
        return out[0], out[1]

    def _pair_lines(self, contexts_a: list[list[int]], contexts_b: list[list[int]]) -> None:
        levels = [
            (contexts_a[1], contexts_b[1]),
            (contexts_a[0], contexts_b[0]),
            (self.a.own, self.b.own),
        ]
        self.lines = align(levels, len(self.a.lines), len(self.b.lines))
        self.owner = [-1] * len(self.b.lines)
        for i, j in enumerate(self.lines):
            if j >= 0:
                self.owner[j] = i
                self._map_outputs(i, j)

    def _settle(self) -> None:
        """Repair the pairing by dataflow; a repair can bring another one within reach, so a few times."""
        for _ in range(MAX_REPAIRS):
            if not self._repair():
                return

    def _repair(self) -> bool:
        """Walk ``a`` in order; where operands disagree, take the line of ``b`` that has just these operands."""
        repaired = False
        for i, parts in enumerate(self.a.parts):
            j = self.lines[i]
            if j >= 0 and self._operands_match(i, j):
                continue
            # An operand that is new or gone is no disagreement: look for better, but take it from no settled line.
            wrong = j < 0 or self.operands_differ(parts.uses, self.b.parts[j].uses)
            better = self._line_with_operands(i, wrong)
            if better < 0 or better == j:
                continue
            if j >= 0:
                self._part(i)
            if self.owner[better] >= 0:
                self._part(self.owner[better])
            self._join(i, better)
            repaired = True
        return repaired

    def _line_with_operands(self, i: int, take: bool) -> int:
        """Line of ``b`` like line ``i`` whose operands are the partners of its operands.

        One that has a partner with just these operands is left alone, but for a later partner where ``take`` is set.
        """
        operands = []
        for name in self.a.parts[i].uses:
            other = self.forward.get(name)
            if other is None:
                return -1
            operands.append(self._value(other))
        if self._by_operands is None:
            self._by_operands = {}
            for j, (own, parts) in enumerate(zip(self.b.own, self.b.parts, strict=True)):
                uses = tuple([self._value(name) for name in parts.uses])
                self._by_operands.setdefault((own, uses), []).append(j)
        found = self._by_operands.get((self.a.own[i], tuple(operands)), ())
        best = -1
        for j in found:
            if self.owner[j] < 0:
                return j
            if best < 0 and ((take and self.owner[j] > i) or not self._operands_match(self.owner[j], j)):
                best = j
        return best

    def _operands_match(self, i: int, j: int) -> bool:
        """Whether each operand has its partner in its place."""
        uses_a, uses_b = self.a.parts[i].uses, self.b.parts[j].uses
        if len(uses_a) != len(uses_b):
            return False
        for x, y in zip(uses_a, uses_b, strict=True):
            partner = self.forward.get(x)
            if partner != y and (partner is None or self._value(partner) != self._value(y)):
                return False
        return True

    def _pair_moved(self, contexts_a: list[list[int]], contexts_b: list[list[int]]) -> None:
        """Pair what is left over and has the same key including operands."""
        if min(self.lines, default=0) >= 0 or min(self.owner, default=0) >= 0:
            return
        for keys_a, keys_b in ((contexts_a[1], contexts_b[1]), (contexts_a[0], contexts_b[0])):
            free: dict[int, list[int]] = {}
            for j in range(len(self.owner) - 1, -1, -1):
                if self.owner[j] < 0:
                    free.setdefault(keys_b[j], []).append(j)
            for i, j in enumerate(self.lines):
                candidates = free.get(keys_a[i]) if j < 0 else None
                if candidates and not self.operands_differ(self.a.parts[i].uses, self.b.parts[candidates[-1]].uses):
                    self._join(i, candidates.pop())

    def _pair_changed(self) -> bool:
        """Pair what is left over between two lines that have partners and resembles each other."""
        found = False
        if min(self.lines, default=0) >= 0 or min(self.owner, default=0) >= 0:
            return found
        pairs = [(i, j) for i, j in enumerate(self.lines) if j >= 0]
        in_order = [pairs[k] for k in longest_increasing([j for _, j in pairs])]
        a = b = 0
        for i, j in [*in_order, (len(self.lines), len(self.owner))]:
            free_a = [k for k in range(a, i) if self.lines[k] < 0]
            free_b = [k for k in range(b, j) if self.owner[k] < 0]
            a, b = i + 1, j + 1
            if not free_a or not free_b:
                continue
            levels = [
                ([self._weak(key, self.a, k) for k in free_a], [self._weak(key, self.b, k) for k in free_b])
                for key in (_without_module, _symbol_and_module, _symbol_and_module_kind)
            ]
            for k, partner in enumerate(align(levels, len(free_a), len(free_b))):
                if partner >= 0:
                    self._join(free_a[k], free_b[partner])
                    found = True
        return found

    def _weak(self, key: Callable[[LineParts], Hashable], s: Structure, at: int) -> int:
        return self.interner.number(key(s.parts[at]))

    # -- names

    def operands_differ(self, uses_a: Sequence[str], uses_b: Sequence[str]) -> bool:
        """Whether an operand that has a partner stands where another operand that has one stands."""
        forward = self.forward
        for x, y in zip(uses_a, uses_b, strict=False):
            partner = forward.get(x)
            if partner != y and partner is not None and y in self.backward and self._value(partner) != self._value(y):
                return True
        return False

    def _value(self, name: str) -> str:
        """First name in ``b`` for the same value: which of two equal lines is used makes no difference."""
        if self._first_names is None:
            self._first_names = first_names(self.b)
        return self._first_names.get(name, name)

    def _map(self, x: str, y: str) -> None:
        self.forward[x] = y
        self.backward[y] = x

    def _map_outputs(self, i: int, j: int) -> None:
        for x, y in zip(self.a.lines[i].outputs, self.b.lines[j].outputs, strict=False):
            if x is not None and y is not None:
                self._map(x.name, y.name)

    def _join(self, i: int, j: int) -> None:
        self.lines[i] = j
        self.owner[j] = i
        self._map_outputs(i, j)

    def _part(self, i: int) -> None:
        self.owner[self.lines[i]] = -1
        self.lines[i] = -1
        for var in self.a.lines[i].defines():
            other = self.forward.pop(var.name, None)
            if other is not None:
                del self.backward[other]

    # -- judgement

    def line_aspects(self, i: int, j: int) -> tuple[str, ...]:
        p, q = self.a.parts[i], self.b.parts[j]
        differ = self.operands_differ(p.uses, q.uses)
        if not differ and self.a.own[i] == self.b.own[j] and p.executor == q.executor:
            return ()
        found = {
            "type": p.types != q.types,
            "arguments": differ or p.skeleton != q.skeleton or len(p.uses) != len(q.uses),
            "executor": p.executor != q.executor,
            "tags": p.tags != q.tags,
            "members": p.members != q.members,
            "module": p.module != q.module,
        }
        return tuple(name for name, is_so in found.items() if is_so) or ("unpacking",)


def _without_module(parts: LineParts) -> Hashable:
    return "without module", parts.symbol, parts.skeleton, parts.types


def _symbol_and_module(parts: LineParts) -> Hashable:
    return "symbol and module", parts.symbol, parts.module


def _symbol_and_module_kind(parts: LineParts) -> Hashable:
    return "symbol and module kind", parts.symbol, re.sub(r"\d+", "", parts.module)
