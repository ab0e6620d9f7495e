"""Which line of one trace is which line of another: alignment by structure, not by name or position.

Sequences of keys are aligned from the strongest kind of key to the weakest. For each kind, common ends are stripped,
keys that occur once on both sides become anchors (patience diff, Bram Cohen), and what lies between the anchors is
aligned by itself: a small gap by longest common subsequence, a large one without anchors by looking for the next
place where several keys in a row agree. Time is linear in practice: each key is visited once per kind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

#: Gaps up to this many cells are aligned by longest common subsequence.
MAX_CELLS = 20_000
#: A large gap without anchors: this many keys in a row must agree, at most so far ahead.
RUN = 4
#: Less than one anchor in so many lines are few.
FEW = 16
WINDOW = 256

#: Matched positions, ``-1`` where a line has no partner.
Match = list[int]


def align(levels: Sequence[tuple[Sequence[int], Sequence[int]]], n: int, m: int) -> Match:
    """Partner of each of the ``n`` lines of the first sequence among the ``m`` of the second, in increasing order.

    ``levels`` holds, strongest first, the keys of both sequences; equal keys may be paired.
    """
    match: Match = [-1] * n
    todo = [(0, n, 0, m, 0)]
    while todo:
        a_lo, a_hi, b_lo, b_hi, level = todo.pop()
        if a_lo >= a_hi or b_lo >= b_hi or level >= len(levels):
            continue
        keys_a, keys_b = levels[level]
        while a_lo < a_hi and b_lo < b_hi and keys_a[a_lo] == keys_b[b_lo]:
            match[a_lo] = b_lo
            a_lo += 1
            b_lo += 1
        while a_lo < a_hi and b_lo < b_hi and keys_a[a_hi - 1] == keys_b[b_hi - 1]:
            a_hi -= 1
            b_hi -= 1
            match[a_hi] = b_hi
        if a_lo >= a_hi or b_lo >= b_hi:
            continue
        pairs = _unique_pairs(keys_a, keys_b, a_lo, a_hi, b_lo, b_hi)
        again = level
        if len(pairs) * FEW < min(a_hi - a_lo, b_hi - b_lo):
            # Few anchors may be one line that moved far: they count only where they are not at odds with the rest.
            small = (a_hi - a_lo) * (b_hi - b_lo) <= MAX_CELLS
            common = (_common if small else _resynchronise)(keys_a, keys_b, a_lo, a_hi, b_lo, b_hi)
            if len(common) > len(pairs):
                pairs, again = common, level + 1
        if not pairs:
            again = level + 1
        for a, b in pairs:
            match[a] = b
            todo.append((a_lo, a, b_lo, b, again))
            a_lo, b_lo = a + 1, b + 1
        todo.append((a_lo, a_hi, b_lo, b_hi, again))
    return match


def longest_increasing(values: Sequence[int]) -> list[int]:
    """Positions of a longest strictly increasing subsequence of ``values``."""
    tails: list[int] = []
    positions: list[int] = []
    previous: list[int] = []
    for position, value in enumerate(values):
        k = bisect_left(tails, value)
        if k == len(tails):
            tails.append(value)
            positions.append(position)
        else:
            tails[k] = value
            positions[k] = position
        previous.append(positions[k - 1] if k else -1)
    out: list[int] = []
    at = positions[-1] if positions else -1
    while at >= 0:
        out.append(at)
        at = previous[at]
    out.reverse()
    return out


def _unique_pairs(
    keys_a: Sequence[int], keys_b: Sequence[int], a_lo: int, a_hi: int, b_lo: int, b_hi: int
) -> list[tuple[int, int]]:
    """Pairs of keys that occur once in both ranges, without crossings."""
    where_b = _once(keys_b, b_lo, b_hi)
    pairs = [(a, b) for key, a in _once(keys_a, a_lo, a_hi).items() if (b := where_b.get(key, -1)) >= 0 <= a]
    return [pairs[i] for i in longest_increasing([b for _, b in pairs])]


def _once(keys: Sequence[int], lo: int, hi: int) -> dict[int, int]:
    """Position of each key in the order of first occurrence, ``-1`` where it occurs again."""
    where: dict[int, int] = {}
    for i in range(lo, hi):
        key = keys[i]
        where[key] = -1 if key in where else i
    return where


def _common(
    keys_a: Sequence[int], keys_b: Sequence[int], a_lo: int, a_hi: int, b_lo: int, b_hi: int
) -> list[tuple[int, int]]:
    """A longest common subsequence, by dynamic programming from the end."""
    n, m = a_hi - a_lo, b_hi - b_lo
    rows = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n - 1, -1, -1):
        key, row, below = keys_a[a_lo + i], rows[i], rows[i + 1]
        for j in range(m - 1, -1, -1):
            if key == keys_b[b_lo + j]:
                row[j] = below[j + 1] + 1
            else:
                row[j] = below[j] if below[j] >= row[j + 1] else row[j + 1]
    pairs = []
    i = j = 0
    while i < n and j < m:
        if keys_a[a_lo + i] == keys_b[b_lo + j]:
            pairs.append((a_lo + i, b_lo + j))
            i += 1
            j += 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _resynchronise(
    keys_a: Sequence[int], keys_b: Sequence[int], a_lo: int, a_hi: int, b_lo: int, b_hi: int
) -> list[tuple[int, int]]:
    """Walk both ranges side by side; where they part, skip to the nearest place where ``RUN`` keys agree again."""
    pairs = []
    a, b = a_lo, b_lo
    while a < a_hi and b < b_hi:
        if keys_a[a] == keys_b[b]:
            pairs.append((a, b))
            a += 1
            b += 1
            continue
        skip_a, skip_b = _next_agreement(keys_a, keys_b, a, a_hi, b, b_hi)
        a += skip_a
        b += skip_b
    return pairs


def _next_agreement(
    keys_a: Sequence[int], keys_b: Sequence[int], a: int, a_hi: int, b: int, b_hi: int
) -> tuple[int, int]:
    """How many keys to skip on each side, the fewest in sum."""
    stop_a, stop_b = min(a_hi, a + WINDOW), min(b_hi, b + WINDOW)
    seen_a: dict[tuple[int, ...], int] = {}
    seen_b: dict[tuple[int, ...], int] = {}
    best: tuple[int, int] | None = None
    for step in range(max(stop_a - a, stop_b - b)):
        if best is not None and step >= sum(best):
            break
        found = []
        if a + step < stop_a:
            run = tuple(keys_a[a + step : min(a_hi, a + step + RUN)])
            seen_a.setdefault(run, step)
            if run in seen_b:
                found.append((step, seen_b[run]))
        if b + step < stop_b:
            run = tuple(keys_b[b + step : min(b_hi, b + step + RUN)])
            seen_b.setdefault(run, step)
            if run in seen_a:
                found.append((seen_a[run], step))
        for pair in found:
            if best is None or sum(pair) < sum(best):
                best = pair
    return best or (stop_a - a, stop_b - b)
