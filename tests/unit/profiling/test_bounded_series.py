"""Exact aggregates and a bounded reservoir."""

from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from thunderfx.profiling.series import Series


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_aggregates_are_exact_and_the_sample_is_bounded(values):
    series = Series(capacity=8)
    for value in values:
        series.add(value)
    assert (series.count, series.maximum, series.last) == (len(values), max(values), values[-1])
    assert series.mean == approx(sum(values) / len(values), abs=1e-6)
    assert len(series.sample()) == min(8, len(values))
    assert set(series.sample()) <= set(values)


def test_the_sample_covers_the_whole_stream():
    series = Series(capacity=200)
    for value in range(10_000):
        series.add(float(value))
    assert sum(series.sample()) / 200 == approx(5000, rel=0.15)
