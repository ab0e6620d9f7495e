"""Alignment of key sequences."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from thunderfx.trace.align import align, longest_increasing

KEYS = st.lists(st.integers(0, 5), max_size=30)


def pairs(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    return [(i, j) for i, j in enumerate(align([(a, b)], len(a), len(b))) if j >= 0]


@given(KEYS, KEYS)
def test_pairs_have_equal_keys_and_do_not_cross(a: list[int], b: list[int]) -> None:
    found = pairs(a, b)
    assert all(a[i] == b[j] for i, j in found)
    assert all(p[1] < q[1] for p, q in pairwise(found))


@given(KEYS)
def test_equal_sequences_align_line_by_line(a: list[int]) -> None:
    assert align([(a, a)], len(a), len(a)) == list(range(len(a)))


@given(KEYS, st.integers(0, 30), st.integers(0, 5))
def test_one_inserted_key_leaves_all_others_paired(a: list[int], at: int, key: int) -> None:
    b = [*a[:at], key, *a[at:]]
    assert len(pairs(a, b)) == len(a)


def test_weaker_keys_pair_what_stronger_keys_left_over() -> None:
    strong = ([1, 2, 3], [1, 9, 3])
    weak = ([7, 7, 7], [7, 7, 7])
    assert align([strong], 3, 3) == [0, -1, 2]
    assert align([strong, weak], 3, 3) == [0, 1, 2]


def test_a_large_gap_without_unique_keys_finds_its_way_back() -> None:
    a = [i % 7 for i in range(2000)]
    b = [*a[:500], 8, 8, *a[500:1200], *a[1207:], 9]
    a = [9, *a]
    assert len(pairs(a, b)) >= 1985


@given(st.lists(st.integers(0, 20), max_size=20, unique=True))
def test_longest_increasing_is_increasing_and_longest(values: list[int]) -> None:
    found = [values[i] for i in longest_increasing(values)]
    assert found == sorted(found)
    best = [1] * len(values)
    for i, value in enumerate(values):
        best[i] = 1 + max((best[j] for j in range(i) if values[j] < value), default=0)
    assert len(found) == max(best, default=0)
