"""Index arithmetic: views cost nothing where ranges allow, and are right where they do not."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from thunderfx.executors.triton.index import Index, flatten, offset, unflatten

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


def value(index: Index, **variables: int) -> int:
    return int(eval(str(index), {}, variables))


def test_a_view_of_a_view_is_the_index_that_it_was():
    m, n = Index.variable("m", 12), Index.variable("n", 16)
    inner = unflatten(m * 16 + n, (3, 4, 16))
    assert [str(at) for at in inner] == ["((m) // 4)", "((m) % 4)", "n"]
    assert str(flatten(inner, (3, 4, 16))) == "m * 16 + n"
    assert unflatten(flatten(inner, (3, 4, 16)), (12, 16)) == (m, n)


def test_a_size_of_one_has_no_variable():
    assert str(Index.variable("m", 1)) == "0"
    assert unflatten(Index.variable("m", 6), (1, 6, 1)) == (Index(), Index.variable("m", 6), Index())


@given(SHAPES, st.data())
def test_permuted_and_viewed_again(shape, data):
    """Coordinates of a permuted tensor, seen in another shape, are those that numpy finds."""
    order = data.draw(st.permutations(range(len(shape))))
    size = math.prod(shape)
    other = data.draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
    permuted = [shape[d] for d in order]
    inner = unflatten(Index.variable("i", size), shape)
    flat = flatten([inner[d] for d in order], permuted)
    seen = unflatten(flat, (other, size // other))
    expected = np.arange(size).reshape(shape).transpose(order).argsort(axis=None)
    for i in range(size):
        assert [value(at, i=i) for at in seen] == list(np.unravel_index(expected[i], (other, size // other)))


@given(st.integers(2, 40), st.integers(1, 7), st.integers(0, 9), st.integers(1, 12))
def test_quotient_and_remainder(size, factor, constant, divisor):
    index = Index.variable("i", size) * factor + constant
    quotient, rest = index.divmod(divisor)
    for i in range(size):
        assert (value(quotient, i=i), value(rest, i=i)) == divmod(i * factor + constant, divisor)
    assert quotient.greatest == (index.greatest // divisor) or quotient.greatest >= index.greatest // divisor
    assert 0 <= rest.least and rest.greatest <= max(divisor - 1, 0)


def test_strides():
    assert str(offset((Index.variable("m", 3), Index.variable("n", 4)), (1, 3))) == "n * 3 + m"
