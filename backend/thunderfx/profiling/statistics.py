"""Summaries of time samples, and whether two sets of them differ by more than noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Literal

import msgspec

Verdict = Literal["better", "worse", "within noise", "too few samples"]

EXACT_UP_TO = 24
"""Up to so many samples, both sides together, the rank test is exact; above, the normal approximation."""


class Summary(msgspec.Struct, frozen=True):
    """Median, 10th and 90th percentile, and the median absolute deviation (not scaled to a sigma)."""

    median_ms: float
    low_ms: float
    high_ms: float
    mad_ms: float
    n: int


def summarise(samples_ms: Sequence[float]) -> Summary:
    """Summary of the samples; raises ValueError where there is none, or one that is not finite."""
    _require_finite(samples_ms)
    if not samples_ms:
        raise ValueError("no samples to summarise")
    ordered = sorted(samples_ms)
    middle = median(ordered)
    return Summary(
        median_ms=middle,
        low_ms=_percentile(ordered, 0.1),
        high_ms=_percentile(ordered, 0.9),
        mad_ms=median(abs(sample - middle) for sample in ordered),
        n=len(ordered),
    )


def significant(
    a_samples: Sequence[float], b_samples: Sequence[float], *, min_effect: float = 0.03, alpha: float = 0.01
) -> Verdict:
    """Whether `b_samples` are better (smaller) or worse (larger) than `a_samples`.

    Both must hold: the medians differ by a factor of at least `1 + min_effect`, and a two-sided Mann-Whitney test
    rejects equality at `alpha`. "too few samples" where no ranking of so few could reach `alpha` (at 0.01, fewer
    than five on each side). Swapping the arguments swaps "better" and "worse" and changes nothing else.

    Raises ValueError for samples that are negative or not finite. The test takes the samples as independent, which
    steps of one process are only in part; `min_effect` guards against the small, steady differences that remain.
    """
    _require_finite(a_samples)
    _require_finite(b_samples)
    n, m = len(a_samples), len(b_samples)
    if min(n, m) < 3 or 2 / math.comb(n + m, n) > alpha:
        return "too few samples"
    a_median, b_median = median(a_samples), median(b_samples)
    smaller, larger = sorted((a_median, b_median))
    if smaller == larger or larger < smaller * (1 + min_effect):
        return "within noise"
    if rank_test(a_samples, b_samples) > alpha:
        return "within noise"
    return "better" if b_median < a_median else "worse"


def rank_test(a_samples: Sequence[float], b_samples: Sequence[float]) -> float:
    """Two-sided p-value of the Mann-Whitney (Wilcoxon rank-sum) test; neither side may be empty.

    H. B. Mann and D. R. Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the
    Other", Ann. Math. Statist. 18 (1947). Small samples: the exact permutation distribution of the midranks, so ties
    are exact too (B. Streitberg and J. Roehmel, "Exact Distributions for Permutation and Rank Tests", 1986). Large
    ones: normal approximation with continuity and tie correction (E. L. Lehmann, "Nonparametrics", 1975, section 1.4).
    """
    if not a_samples or not b_samples:
        raise ValueError("the rank test needs samples on both sides")
    doubled, ties = _doubled_midranks([*a_samples, *b_samples])
    n, m = len(a_samples), len(b_samples)
    if n + m <= EXACT_UP_TO:
        return _exact_p(doubled, n)
    size = n + m
    u = sum(doubled[:n]) / 2 - n * (n + 1) / 2
    variance = n * m / 12 * ((size + 1) - sum(t**3 - t for t in ties) / (size * (size - 1)))
    if variance <= 0:  # every sample is equal
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return math.erfc(z / math.sqrt(2))


def _exact_p(doubled: list[int], n: int) -> float:
    """Share of the ways to choose `n` of the ranks whose sum lies at least as far from its mean as the first `n`'s."""
    # ways[k][s]: number of subsets of k ranks with (doubled) sum s
    ways: list[dict[int, int]] = [{0: 1}] + [{} for _ in range(n)]
    for rank in doubled:
        for k in range(n, 0, -1):
            into = ways[k]
            for total, count in ways[k - 1].items():
                into[total + rank] = into.get(total + rank, 0) + count
    centre = n * (len(doubled) + 1)  # mean of the doubled rank sum, an integer
    distance = abs(sum(doubled[:n]) - centre)
    extreme = sum(count for total, count in ways[n].items() if abs(total - centre) >= distance)
    return extreme / math.comb(len(doubled), n)


def _doubled_midranks(values: Sequence[float]) -> tuple[list[int], list[int]]:
    """Twice the midrank of each value (an integer also for ties), and the sizes of the groups of equal values."""
    order = sorted(range(len(values)), key=values.__getitem__)
    doubled = [0] * len(values)
    ties: list[int] = []
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            doubled[index] = start + 1 + end
        ties.append(end - start)
        start = end
    return doubled, ties


def midranks(values: Sequence[float]) -> list[float]:
    """Rank of each value, from 1; equal values share the mean of their ranks."""
    return [rank / 2 for rank in _doubled_midranks(values)[0]]


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the closest ranks (numpy's default method)."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def _require_finite(samples_ms: Sequence[float]) -> None:
    for sample in samples_ms:
        if not math.isfinite(sample) or sample < 0:
            raise ValueError(f"a time sample must be finite and not negative, got {sample!r}")
