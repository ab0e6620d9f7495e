"""Figures as text."""

from __future__ import annotations


def format_bytes(value: float) -> str:
    """``1536`` -> ``"1.50 KiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} TiB"


def format_ms(value: float) -> str:
    """Milliseconds, with the unit that keeps three digits: ``"812 us"``, ``"1.25 ms"``, ``"3.10 s"``."""
    if abs(value) < 1:
        return f"{value * 1000:.0f} us"
    if abs(value) < 1000:
        return f"{value:.2f} ms" if abs(value) < 100 else f"{value:.0f} ms"
    return f"{value / 1000:.2f} s"


def format_rate(value: float) -> str:
    """A number with a decimal prefix: ``12_300_000_000`` -> ``"12.3 G"``."""
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            digits = f"{value:.0f}" if not unit or abs(value) >= 99.95 else f"{value:.1f}"
            return f"{digits} {unit}".rstrip()
        value /= 1000
    return f"{value:.1f} P"


def format_count(count: int, noun: str) -> str:
    """``"1 line"``, ``"12 lines"``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
