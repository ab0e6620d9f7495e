"""Integer index expressions of a kernel: sums of multiples of loop variables, whose ranges are known.

``flatten`` and ``unflatten`` undo each other where ranges allow, so that a view costs no arithmetic: the index of
``x.view(12, 16)`` in terms of that of ``x`` of shape ``(3, 4, 16)`` is the same one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Atom:
    """A value from 0 to ``size - 1``: a loop variable, or the quotient or remainder of an index by ``divisor``."""

    text: str
    size: int
    base: Index | None = None
    divisor: int = 0
    is_quotient: bool = False


@dataclasses.dataclass(frozen=True)
class Index:
    """``sum(coefficient * atom) + constant``, terms in a fixed order."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @staticmethod
    def variable(text: str, size: int) -> Index:
        return Index(((Atom(text, size), 1),)) if size > 1 else Index()

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + coefficient
        return _normal(sums, self.constant + other.constant)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((atom, coefficient * factor) for atom, coefficient in self.terms), self.constant * factor)

    @property
    def least(self) -> int:
        return self.constant + sum(min(0, c * (atom.size - 1)) for atom, c in self.terms)

    @property
    def greatest(self) -> int:
        return self.constant + sum(max(0, c * (atom.size - 1)) for atom, c in self.terms)

    def divmod(self, divisor: int) -> tuple[Index, Index]:
        """Quotient and remainder; the index must not be negative."""
        if divisor == 1:
            return self, Index()
        whole = {atom: c // divisor for atom, c in self.terms if c % divisor == 0}
        rest = Index(tuple((atom, c) for atom, c in self.terms if c % divisor), self.constant % divisor)
        quotient = _normal(whole, self.constant // divisor)
        if rest.least >= 0 and rest.greatest < divisor:
            return quotient, rest
        if rest.least < 0:
            quotient, rest = Index(), self
        return quotient + _part(rest, divisor, True), _part(rest, divisor, False)

    def atoms(self) -> set[str]:
        """Names of the loop variables that the index depends on."""
        found: set[str] = set()
        for atom, _ in self.terms:
            found |= atom.base.atoms() if atom.base is not None else {atom.text}
        return found

    def __str__(self) -> str:
        parts = [atom.text if c == 1 else f"{atom.text} * {c}" for atom, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def _part(index: Index, divisor: int, is_quotient: bool) -> Index:
    size = index.greatest // divisor + 1 if is_quotient else divisor
    if size == 1:
        return Index()
    sign = "//" if is_quotient else "%"
    return Index(((Atom(f"(({index}) {sign} {divisor})", size, index, divisor, is_quotient), 1),))


def _normal(sums: dict[Atom, int], constant: int) -> Index:
    """Without zero terms, and with ``x // d * d + x % d`` put together again."""
    for atom in [a for a in sums if a.base is not None and not a.is_quotient]:
        coefficient = sums.get(atom, 0)
        partner = next((a for a in sums if a.is_quotient and a.base == atom.base and a.divisor == atom.divisor), None)
        if coefficient and partner is not None and sums[partner] == coefficient * atom.divisor:
            del sums[atom], sums[partner]
            assert atom.base is not None
            return Index(tuple(sums.items()), constant) + atom.base * coefficient
    kept = sorted(((a, c) for a, c in sums.items() if c), key=lambda term: (-term[1], term[0].text))
    return Index(tuple(kept), constant)


def flatten(coordinates: Sequence[Index], shape: Sequence[int]) -> Index:
    """Position in a contiguous tensor of ``shape``."""
    flat = Index()
    for coordinate, size in zip(coordinates, shape, strict=True):
        flat = flat * size + coordinate
    return flat


def unflatten(flat: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """Coordinates of a position in a contiguous tensor of ``shape``."""
    out: list[Index] = []
    for size in reversed(shape[1:]):
        flat, rest = flat.divmod(size)
        out.append(rest)
    if shape:
        out.append(flat)
    return tuple(reversed(out))


def offset(coordinates: Sequence[Index], strides: Sequence[int]) -> Index:
    """Position in memory, in elements."""
    total = Index()
    for coordinate, stride in zip(coordinates, strides, strict=True):
        total = total + coordinate * stride
    return total
