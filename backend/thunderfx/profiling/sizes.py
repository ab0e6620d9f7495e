"""Symbolic sizes of a trace as numbers, at the inputs of a run.

Private names of torch used here (checked on 2.13): the integer functions of ``torch.utils._sympy.functions`` that the
text of a size may name (``FloorDiv(s0, 2)``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thunderfx.trace import ScalarType, TensorType, TraceCtx
from thunderfx.trace.types import Dim, item_bytes


class Sizes:
    """``known`` holds the number of each symbol."""

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self.known = dict(known or {})
        self._found: dict[str, int | None] = {}
        self._scope: dict[str, Any] | None = None

    def number(self, dim: Dim) -> int | None:
        """The number of a size or stride; ``None`` where it holds an unknown symbol."""
        if isinstance(dim, int):
            return dim
        if dim not in self._found:
            self._found[dim] = self._evaluate(dim)
        return self._found[dim]

    def numbers(self, dims: Sequence[Dim]) -> tuple[int, ...] | None:
        """All of them, ``None`` where one is not known."""
        found = [self.number(dim) for dim in dims]
        return None if any(number is None for number in found) else tuple(found)  # type: ignore[arg-type]

    def nbytes(self, type_: Any) -> int | None:
        """Bytes of a dense tensor of this type, and of all items of a sequence; 0 for what is no tensor."""
        if isinstance(type_, TensorType):
            shape = self.numbers(type_.shape)
            return None if shape is None else math.prod(shape) * item_bytes(type_.dtype)
        total = 0
        for item in getattr(type_, "items", ()):
            part = self.nbytes(item)
            if part is None:
                return None
            total += part
        return total

    def touched_bytes(self, type_: Any) -> int | None:
        """As :meth:`nbytes`, where a dimension that repeats its elements (stride 0) counts once."""
        if isinstance(type_, TensorType) and type_.stride is not None:
            shape, stride = self.numbers(type_.shape), self.numbers(type_.stride)
            if shape is None or stride is None:
                return None
            sizes = [size for size, step in zip(shape, stride, strict=True) if step or not size]
            return math.prod(sizes) * item_bytes(type_.dtype)
        return self.nbytes(type_)

    def _evaluate(self, text: str) -> int | None:
        """``text`` is torch's own of a size of a graph compiled in this process."""
        if text in self.known:
            return self.known[text]
        if self._scope is None:
            from torch.utils._sympy import functions

            names = ("FloorDiv", "CeilDiv", "CleanDiv", "ModularIndexing", "Mod", "PythonMod", "Max", "Min")
            self._scope = {name: getattr(functions, name) for name in names if hasattr(functions, name)}
            self._scope["__builtins__"] = {}
        try:
            return int(eval(text, self._scope, self.known))
        except (NameError, TypeError, ValueError, SyntaxError, ArithmeticError):
            return None


def sizes_of(trace: TraceCtx, inputs: Sequence[Any]) -> dict[str, int]:
    """The symbols of ``trace``, read off the tensors and numbers that it is called with."""
    known: dict[str, int] = {}
    for var, value in zip(trace.inputs, inputs, strict=False):
        if isinstance(var.type, ScalarType):
            if var.type.value and not isinstance(value, bool) and hasattr(value, "__int__"):
                known[var.type.value] = int(value)
        elif isinstance(var.type, TensorType):
            for dim, size in zip(var.type.shape, value.shape, strict=False):
                if isinstance(dim, str) and dim.isidentifier():
                    known[dim] = int(size)
    return known
