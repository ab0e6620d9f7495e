"""Figures as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunderfx_cli.render.figures import format_bytes, format_count, format_ms


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (5 * 2**20, "5.00 MiB"),
        (3 * 2**30, "3.00 GiB"),
        (2.5 * 2**40, "2.50 TiB"),
        (4096 * 2**40, "4096.00 TiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_bytes(value, text):
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 us"),
        (0.0004, "0 us"),
        (0.812, "812 us"),
        (1, "1.00 ms"),
        (99.5, "99.50 ms"),
        (100, "100 ms"),
        (999, "999 ms"),
        (1000, "1.00 s"),
        (61_234, "61.23 s"),
        (-1.5, "-1.50 ms"),
    ],
)
def test_milliseconds(value, text):
    assert format_ms(value) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 lines"), (1, "1 line"), (2, "2 lines")])
def test_counts(count, text):
    assert format_count(count, "line") == text


BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


@given(st.floats(0, 2**49))
def test_bytes_read_back_to_half_a_digit(value):
    number, unit = format_bytes(value).split()
    digit = 1 if unit == "B" else 0.01
    assert abs(float(number) * BYTES[unit] - value) <= digit * BYTES[unit] * 0.501


@given(st.floats(1e-3, 1e7))
def test_milliseconds_read_back_within_a_hundredth(value):
    number, unit = format_ms(value).split()
    assert float(number) * MILLISECONDS[unit] == pytest.approx(value, rel=0.01, abs=0.0005)
