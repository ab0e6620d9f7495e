"""Summaries and the verdict on two sets of samples."""

import itertools
import math
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thunderfx.profiling.statistics import EXACT_UP_TO, rank_test, significant, summarise

times = st.lists(st.integers(1, 40).map(lambda quarter: quarter / 4), min_size=1, max_size=16)
OPPOSITE = {"better": "worse", "worse": "better"}


def test_summary_of_known_samples():
    summary = summarise([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (summary.median_ms, summary.low_ms, summary.high_ms, summary.mad_ms, summary.n) == (3.0, 1.4, 4.6, 1.0, 5)


def test_summary_of_one_sample():
    summary = summarise([7.5])
    assert (summary.median_ms, summary.low_ms, summary.high_ms, summary.mad_ms, summary.n) == (7.5, 7.5, 7.5, 0.0, 1)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf], [-1.0]])
def test_summary_refuses_what_is_no_time(samples):
    with pytest.raises(ValueError):
        summarise(samples)


@given(times)
def test_summary_is_ordered(samples):
    summary = summarise(samples)
    assert min(samples) <= summary.low_ms <= summary.median_ms <= summary.high_ms <= max(samples)


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),  # the most extreme of C(8, 4) rankings, on both ends
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([1, 4], [2, 3], 1.0),
        ([5, 5, 5], [5, 5, 5], 1.0),
    ],
)
def test_exact_p_values(a, b, p):
    assert rank_test(a, b) == pytest.approx(p)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=7), st.integers(1, 6))
def test_exact_p_value_counts_all_relabellings_also_with_ties(values, n):
    n = min(n, len(values) - 1)

    def distance(chosen):
        rest = [values[i] for i in range(len(values)) if i not in chosen]
        u = sum((values[i] > other) + (values[i] == other) / 2 for i in chosen for other in rest)
        return abs(u - n * (len(values) - n) / 2)

    every = [distance(set(chosen)) for chosen in itertools.combinations(range(len(values)), n)]
    expected = sum(d >= distance(set(range(n))) for d in every) / len(every)
    assert rank_test(values[:n], values[n:]) == pytest.approx(expected)


def test_normal_approximation_continues_the_exact_test(monkeypatch):
    generator = random.Random(1)
    half = EXACT_UP_TO // 2
    a = [generator.gauss(10, 1) for _ in range(half)]
    b = [generator.gauss(10.8, 1) for _ in range(half)]
    exact = rank_test(a, b)
    monkeypatch.setattr("thunderfx.profiling.statistics.EXACT_UP_TO", 0)
    assert rank_test(a, b) != exact
    assert rank_test(a, b) == pytest.approx(exact, rel=0.1, abs=0.002)


def test_normal_approximation_with_ties():
    # by hand: U counts the 5 x 5 ties as a half each, its mean is 112.5; three ties of ten: 3 * (10^3 - 10) = 2970
    a, b = [1.0] * 10 + [2.0] * 5, [2.0] * 5 + [3.0] * 10
    u = 5 * 5 / 2
    variance = 15 * 15 / 12 * (31 - 2970 / (30 * 29))
    z = (112.5 - u - 0.5) / math.sqrt(variance)
    assert rank_test(a, b) == pytest.approx(math.erfc(z / math.sqrt(2)))


def test_many_equal_samples_differ_in_nothing():
    assert rank_test([1.0] * 30, [1.0] * 30) == 1.0
    assert significant([1.0] * 30, [1.0] * 30) == "within noise"


def test_clear_change_is_named_from_the_view_of_the_second():
    slow, fast = [10.0, 10.1, 10.2, 10.3, 10.4], [8.0, 8.1, 8.2, 8.3, 8.4]
    assert significant(slow, fast) == "better"
    assert significant(fast, slow) == "worse"


def test_small_effect_is_noise_however_sure():
    a = [10 + i / 1000 for i in range(40)]
    b = [10.1 + i / 1000 for i in range(40)]
    assert rank_test(a, b) < 1e-6
    assert significant(a, b) == "within noise"
    assert significant(a, b, min_effect=0.005) == "worse"


def test_large_effect_inside_the_spread_is_noise():
    assert significant([1.0, 9.0, 2.0, 8.0, 3.0], [9.5, 1.5, 8.5, 2.5, 4.0]) == "within noise"


@pytest.mark.parametrize(("n", "m"), [(0, 0), (0, 50), (2, 500), (4, 4)])
def test_too_few_samples_to_ever_be_sure(n, m):
    assert significant([1.0] * n, [2.0] * m) == "too few samples"


def test_equal_distributions_are_rarely_called_different():
    generator = random.Random(7)
    verdicts = [
        significant([generator.gauss(10, 2) for _ in range(10)], [generator.gauss(10, 2) for _ in range(10)])
        for _ in range(300)
    ]
    assert sum(verdict != "within noise" for verdict in verdicts) <= 9


@given(times, times)
def test_verdict_is_symmetric(a, b):
    forth, back = significant(a, b), significant(b, a)
    assert back == OPPOSITE.get(forth, forth)
    assert rank_test(a, b) == pytest.approx(rank_test(b, a))


@given(times)
def test_samples_do_not_differ_from_themselves(samples):
    assert significant(samples, samples) in ("within noise", "too few samples")


def test_package_imports_without_torch():
    program = (
        "import sys, thunderfx.profiling.statistics, thunderfx.profiling.reading, thunderfx.profiling.nvml;"
        "from thunderfx.profiling import MemoryMeter, NvmlSampler, StepTimer, describe, significant;"
        "print([m for m in ('torch', 'numpy', 'pynvml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
