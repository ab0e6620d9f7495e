"""Index expressions of a kernel: sums of multiples of loop variables, whose ranges are known.

``flatten`` and ``unflatten`` undo each other where ranges allow, so that a view costs no arithmetic: the index of
``x.view(12, 16)`` in terms of that of ``x`` of shape ``(3, 4, 16)`` is the same one. Sizes may be symbolic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from thunderfx.executors.triton.sizes import Size, never_negative, plain, quotient, same, surely_below, text_of


@dataclasses.dataclass(frozen=True)
class Atom:
    """A value from 0 to ``size - 1``: a loop variable, a value that was loaded (which depends on ``loaded_at``), or the
    quotient or remainder of an index by ``divisor``."""

    text: str
    size: Size
    base: Index | None = None
    divisor: Size = 0
    is_quotient: bool = False
    loaded_at: frozenset[str] | None = None


@dataclasses.dataclass(frozen=True)
class Index:
    """``sum(coefficient * atom) + constant``, terms in a fixed order."""

    terms: tuple[tuple[Atom, Size], ...] = ()
    constant: Size = 0

    @staticmethod
    def variable(text: str, size: Size) -> Index:
        return Index() if isinstance(size, int) and size <= 1 else Index(((Atom(text, size), 1),))

    @staticmethod
    def loaded(var: str, size: Size, depends: frozenset[str]) -> Index:
        """A coordinate that was read from memory."""
        return Index(((Atom(var, size, loaded_at=depends), 1),))

    def __add__(self, other: Index | Size) -> Index:
        if not isinstance(other, Index):
            return Index(self.terms, plain(self.constant + other))
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = plain(sums.get(atom, 0) + coefficient)
        return _normal(sums, plain(self.constant + other.constant))

    def __mul__(self, factor: Size) -> Index:
        if same(factor, 0):
            return Index()
        terms = tuple((atom, plain(coefficient * factor)) for atom, coefficient in self.terms)
        return Index(terms, plain(self.constant * factor))

    @property
    def least(self) -> Size:
        """Raises ``ValueError`` where it depends on which of two symbols is larger."""
        return plain(self.constant + sum(_extent(atom, c, False) for atom, c in self.terms))

    @property
    def greatest(self) -> Size:
        """Raises ``ValueError`` where it depends on which of two symbols is larger."""
        return plain(self.constant + sum(_extent(atom, c, True) for atom, c in self.terms))

    def divmod(self, divisor: Size) -> tuple[Index, Index]:
        """Quotient and remainder; the index must not be negative."""
        if same(divisor, 1):
            return self, Index()
        divided = [(atom, c, quotient(c, divisor)) for atom, c in self.terms]
        whole = {atom: ratio for atom, _, ratio in divided if ratio is not None}
        if isinstance(self.constant, int) and isinstance(divisor, int):
            constant, left = divmod(self.constant, divisor)
        else:
            ratio = quotient(self.constant, divisor)
            constant, left = (0, self.constant) if ratio is None else (ratio, 0)
        rest = Index(tuple((atom, c) for atom, c, ratio in divided if ratio is None), left)
        result = _normal(whole, constant)
        if never_negative(rest.least) and surely_below(rest.greatest, divisor):
            return result, rest
        if not never_negative(rest.least):
            result, rest = Index(), self
        return result + _part(rest, divisor, True), _part(rest, divisor, False)

    def atoms(self) -> set[str]:
        """Names of the loop variables that the index depends on."""
        found: set[str] = set()
        for atom, _ in self.terms:
            if atom.base is not None:
                found |= atom.base.atoms()
            else:
                found |= {atom.text} if atom.loaded_at is None else atom.loaded_at
        return found

    def stride(self, variable: str) -> Size | None:
        """How far the index moves with a loop variable: 0 where it does not, ``None`` where that is not constant."""
        found: Size = 0
        for atom, coefficient in self.terms:
            if atom.text == variable:
                found = coefficient
            elif variable in Index(((atom, 1),)).atoms():
                return None
        return found

    def sizes(self) -> list[Size]:
        """All sizes that the text of the index names."""
        found = [self.constant]
        for atom, coefficient in self.terms:
            found += [coefficient, atom.divisor, *(atom.base.sizes() if atom.base is not None else ())]
        return found

    def __str__(self) -> str:
        parts = [atom.text if same(c, 1) else f"{atom.text} * {text_of(c)}" for atom, c in self.terms]
        if not same(self.constant, 0) or not parts:
            parts.append(text_of(self.constant))
        return " + ".join(parts)


def _extent(atom: Atom, coefficient: Size, upwards: bool) -> Size:
    """How far a term moves an index up, or down."""
    if never_negative(coefficient):
        return coefficient * (atom.size - 1) if upwards else 0
    if never_negative(plain(-coefficient)):
        return 0 if upwards else coefficient * (atom.size - 1)
    raise ValueError(f"the sign of {text_of(coefficient)} is not known")


def _part(index: Index, divisor: Size, is_quotient: bool) -> Index:
    if is_quotient:
        most = index.greatest
        if isinstance(most, int) and isinstance(divisor, int):
            size: Size = most // divisor + 1
        else:
            exact = quotient(plain(most + 1), divisor)
            size = plain(most + 1) if exact is None else exact  # an upper bound is enough
    else:
        size = divisor
    if same(size, 1):
        return Index()
    sign = "//" if is_quotient else "%"
    text = f"(({index}) {sign} {text_of(divisor)})"
    return Index(((Atom(text, size, index, divisor, is_quotient), 1),))


def _normal(sums: dict[Atom, Size], constant: Size) -> Index:
    """Without zero terms, and with ``x // d * d + x % d`` put together again."""
    for atom in [a for a in sums if a.base is not None and not a.is_quotient]:
        coefficient = sums.get(atom, 0)
        partner = next(
            (a for a in sums if a.is_quotient and a.base == atom.base and same(a.divisor, atom.divisor)), None
        )
        if coefficient and partner is not None and same(sums[partner], coefficient * atom.divisor):
            del sums[atom], sums[partner]
            assert atom.base is not None
            whole: Index = Index(tuple(sums.items()), constant) + atom.base * coefficient
            return whole
    kept = sorted(((a, c) for a, c in sums.items() if c), key=_rank)
    return Index(tuple(kept), constant)


def _rank(term: tuple[Atom, Size]) -> tuple[int, str, str]:
    """Symbolic coefficients first, then large ones."""
    atom, coefficient = term
    return (-coefficient, "", atom.text) if isinstance(coefficient, int) else (-(2**62), str(coefficient), atom.text)


def flatten(coordinates: Sequence[Index], shape: Sequence[Size]) -> Index:
    """Position in a contiguous tensor of ``shape``."""
    flat = Index()
    for coordinate, size in zip(coordinates, shape, strict=True):
        flat = flat * size + coordinate
    return flat


def unflatten(flat: Index, shape: Sequence[Size]) -> tuple[Index, ...]:
    """Coordinates of a position in a contiguous tensor of ``shape``."""
    out: list[Index] = []
    for size in reversed(shape[1:]):
        flat, rest = flat.divmod(size)
        out.append(rest)
    if shape:
        out.append(flat)
    return tuple(reversed(out))


def offset(coordinates: Sequence[Index], strides: Sequence[Size]) -> Index:
    """Position in memory, in elements."""
    total = Index()
    for coordinate, stride in zip(coordinates, strides, strict=True):
        total = total + coordinate * stride
    return total
