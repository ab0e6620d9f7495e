"""Sizes of tensors: integers, or expressions of the symbols that stand for sizes known when a kernel is launched.

torch gives a symbol to sizes of at least 2 (0 and 1 are compiled for by themselves), which is what comparisons here
rest on; other symbols are refused (``program.Symbols``).

Private names of torch used here (checked on 2.13): ``SymInt.node.expr``, ``PythonPrinter`` of
torch/utils/_sympy/printers.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

#: An integer, or sympy's expression of symbols.
Size = Any
#: The least value of a symbol.
LEAST = 2


def size_of(value: Any) -> Size:
    """torch's size as one of ours."""
    if isinstance(value, int):
        return int(value)
    return plain(value.node.expr)


def plain(value: Size) -> Size:
    """With an integer as Python's."""
    if isinstance(value, int):
        return value
    value = sympy.expand(value)
    return int(value) if value.is_Integer else value


def shape_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    return tuple(map(size_of, tensor.shape))


def strides_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    return tuple(map(size_of, tensor.stride()))


def product(sizes: Iterable[Size]) -> Size:
    total: Size = 1
    for size in sizes:
        total = total * size
    return plain(total)


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal whatever the symbols are."""
    return bool(plain(a - b) == 0)


@functools.lru_cache(maxsize=4096)
def quotient(a: Size, b: Size) -> Size | None:
    """``a / b`` where ``b`` divides ``a`` whatever the symbols are, else ``None``."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if a % b == 0 else None
    found = plain(sympy.cancel(sympy.sympify(a) / b))
    if isinstance(found, int):
        return found
    is_whole = found.is_polynomial() and all(term.is_Integer for term in sympy.Poly(found).coeffs())
    return found if is_whole else None


@functools.lru_cache(maxsize=4096)
def never_negative(value: Size) -> bool:
    """Whether ``value`` is surely at least 0: as a polynomial in how far symbols are above ``LEAST`` it has no negative
    coefficient."""
    if isinstance(value, int):
        return value >= 0
    symbols = sorted(value.free_symbols, key=str)
    if not value.is_polynomial(*symbols):
        return bool(value.is_nonnegative)
    moved = sympy.expand(value.subs({symbol: symbol + LEAST for symbol in symbols}, simultaneous=True))
    return all(coefficient >= 0 for coefficient in sympy.Poly(moved, *symbols).coeffs())


def surely_below(a: Size, b: Size) -> bool:
    return never_negative(plain(b - a - 1))


def text_of(value: Size) -> str:
    """As Python and Triton write it; an expression in parentheses."""
    return str(value) if isinstance(value, int) else f"({PythonPrinter().doprint(value)})"


def symbols_in(values: Iterable[Size]) -> list[str]:
    """Names of the symbols, in order."""
    found = {symbol for value in values if not isinstance(value, int) for symbol in value.free_symbols}
    return sorted(map(str, found))


def hint(value: Size, hints: Mapping[str, int]) -> int:
    """The value for given symbols."""
    if isinstance(value, int):
        return value
    return int(value.subs({symbol: hints[str(symbol)] for symbol in value.free_symbols}))
