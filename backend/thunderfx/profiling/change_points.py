"""Where a series of figures changes its level. Imports no torch."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from thunderfx.profiling.statistics import midranks

#: Permutations of a series: so many, of a long one fewer for the time that they take.
_PERMUTATIONS = (199, 1999)
_PERMUTED_VALUES = 400_000
#: Fewer values on a side can be outliers: with three, one of them may be without moving the median.
MIN_SEGMENT = 3


class ChangePoint(msgspec.Struct, frozen=True):
    """The level changes at ``index``, the first value of the new one. ``before`` and ``after`` are medians of the
    values up to the next change on either side; ``p_value`` is ``None`` for exact figures, which need no test."""

    index: int
    before: float
    after: float
    p_value: float | None = None


def change_points(values: Sequence[float], *, min_effect: float = 0.03, alpha: float = 0.01) -> tuple[ChangePoint, ...]:
    """Changes of level in ``values``, which vary between equal runs, in order.

    The largest standardised Mann-Whitney statistic over all splits finds the likeliest one (D. M. Hawkins and Q. Deng,
    "A Nonparametric Change-Point Control Chart", Journal of Quality Technology 42, 2010), permutations of the series
    its p-value; both parts are split again where that is at most ``alpha``
    (binary segmentation: A. J. Scott and M. Knott, Biometrics 30, 1974), each side having ``MIN_SEGMENT`` values. At
    last, levels that differ by a factor of less than ``1 + min_effect`` are joined. Levels that come and go
    by turns can hide each other from a search that begins with the whole. Raises ``ValueError`` for values that are not
    finite.
    """
    if not all(map(math.isfinite, values)):
        raise ValueError("a figure of the series is not finite")
    splits: dict[int, float] = {}
    todo = [(0, len(values))]
    while todo:
        start, end = todo.pop()
        found = _split(values[start:end], alpha)
        if found is not None:
            splits[start + found[0]] = found[1]
            todo += [(start, start + found[0]), (start + found[0], end)]
    changes = _with_levels(values, {index: splits[index] for index in sorted(splits)})
    while changes:
        least = min(changes, key=_effect)
        if _effect(least) >= min_effect:
            break
        del splits[least.index]  # its sides are one level, which is compared with its neighbours again
        changes = _with_levels(values, {index: splits[index] for index in sorted(splits)})
    return changes


def _effect(change: ChangePoint) -> float:
    """By how much of the smaller level the two differ."""
    smaller, larger = sorted((abs(change.before), abs(change.after)))
    if change.before * change.after < 0:
        return math.inf
    return (larger - smaller) / smaller if smaller else math.inf if larger else 0.0


def exact_changes(values: Sequence[float]) -> tuple[ChangePoint, ...]:
    """Every change of a figure that is the same in equal runs: a count, or bytes of a trace."""
    return _with_levels(values, {i: None for i in range(1, len(values)) if values[i] != values[i - 1]})


def _with_levels(values: Sequence[float], splits: Mapping[int, float | None]) -> tuple[ChangePoint, ...]:
    edges = [0, *splits, len(values)]
    levels = [median(values[start:end]) for start, end in itertools.pairwise(edges) if end > start]
    return tuple(
        ChangePoint(index, levels[number], levels[number + 1], p) for number, (index, p) in enumerate(splits.items())
    )


def _split(values: Sequence[float], alpha: float) -> tuple[int, float] | None:
    """The likeliest split and its p-value; ``None`` where that is above ``alpha``."""
    if len(values) < 2 * MIN_SEGMENT:
        return None
    weights = _weights(len(values))
    ranks = midranks(values)
    statistic, index = _largest(ranks, weights)
    p = _p_value(ranks, weights, statistic, alpha)
    if p > alpha:
        return None
    return _refined(values, index), p


def _weights(size: int) -> list[float]:
    """One over the standard deviation of the statistic at each split; 0 where a side is too short."""
    inside = range(MIN_SEGMENT, size - MIN_SEGMENT + 1)
    return [math.sqrt(3 / (t * (size - t) * (size + 1))) if t in inside else 0.0 for t in range(1, size + 1)]


def _largest(ranks: Sequence[float], weights: Sequence[float]) -> tuple[float, int]:
    """The largest standardised statistic, and the split where it lies."""
    mean = (len(ranks) + 1) / 2
    found = [
        abs(total - t * mean) * weight
        for t, (total, weight) in enumerate(zip(itertools.accumulate(ranks), weights, strict=True), 1)
    ]
    best = max(found)
    return 2 * best, found.index(best) + 1


def _refined(values: Sequence[float], index: int) -> int:
    """The split beside ``index`` whose sides lie closest to their medians: the statistic favours the nearer end."""
    near = range(max(MIN_SEGMENT, index - MIN_SEGMENT), min(len(values) - MIN_SEGMENT, index + MIN_SEGMENT) + 1)
    return min(near, key=lambda at: (_deviation(values[:at]) + _deviation(values[at:]), abs(at - index)))


def _deviation(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)


def _p_value(ranks: Sequence[float], weights: Sequence[float], statistic: float, alpha: float) -> float:
    """Share of permutations with as large a statistic; one above ``alpha`` is known by fewer of them."""
    fewest, most = _PERMUTATIONS
    count = max(fewest, min(most, _PERMUTED_VALUES // len(ranks)))
    shuffled = list(ranks)
    generator = random.Random(0)  # the same series gets the same answer
    as_large = 1
    for done in range(1, count + 1):
        generator.shuffle(shuffled)
        as_large += _largest(shuffled, weights)[0] >= statistic - 1e-9
        if as_large > alpha * (count + 1):
            return as_large / (done + 1)
    return as_large / (count + 1)
