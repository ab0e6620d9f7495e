"""Where a series changes its level, and where it only varies."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thunderfx.profiling.change_points import change_points, exact_changes


def noise(level: float, count: int, seed: int, spread: float = 0.02) -> list[float]:
    generator = random.Random(seed)
    return [level * generator.gauss(1, spread) for _ in range(count)]


@pytest.mark.parametrize("sizes", [(12, 12), (20, 4), (7, 30, 9), (40, 40, 40), (14, 4), (300, 30)], ids=str)
def test_levels_are_found_where_they_change(sizes):
    levels = (10.0, 13.0, 9.0, 12.0)
    values = [v for n, (size, level) in enumerate(zip(sizes, levels, strict=False)) for v in noise(level, size, n)]
    found = change_points(values)
    assert [change.index for change in found] == list(itertools.accumulate(sizes))[:-1]
    for change, before, after in zip(found, levels, levels[1:], strict=False):
        assert change.before == pytest.approx(before, rel=0.02)
        assert change.after == pytest.approx(after, rel=0.02)
        assert change.p_value <= 0.01


def test_noise_alone_is_seldom_taken_for_a_change():
    """The test's level is 1%: of 200 series without a change, few may be marked."""
    wrong = sum(bool(change_points(noise(10, size, seed))) for size in (15, 70) for seed in range(100))
    assert wrong <= 5


def test_an_outlier_is_no_change_of_level():
    values = noise(10, 20, 1)
    values[10] = values[11] = 50.0
    assert change_points(values) == ()


def test_a_change_below_the_minimum_effect_is_not_told():
    values = noise(10, 15, 1, 0.001) + noise(10.2, 15, 2, 0.001)
    assert change_points(values) == ()
    assert [change.index for change in change_points(values, min_effect=0.01)] == [15]


def test_too_few_values_are_not_judged():
    assert change_points([1.0, 1.0, 9.0, 9.0, 9.0]) == ()
    assert change_points([]) == ()
    assert change_points([1.0] * 50) == ()


def test_what_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        change_points([1.0, math.nan])


def test_exact_figures_change_whenever_they_differ():
    found = exact_changes([0, 0, 1, 1, 0])
    assert [(change.index, change.before, change.after) for change in found] == [(2, 0, 1), (4, 1, 0)]
    assert exact_changes([]) == () == exact_changes([3.0])


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0]), max_size=40), st.floats(0.01, 100))
def test_scale_does_not_matter(values, scale):
    assert [c.index for c in change_points(values)] == [c.index for c in change_points([v * scale for v in values])]
