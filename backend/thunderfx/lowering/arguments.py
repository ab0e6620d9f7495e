"""FX arguments -> trace arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunderfx.lowering.targets import qualified_name
from thunderfx.trace import Arg, Body, DictArg, ListArg, Literal, Ref, SliceArg, TupleArg

_INT64 = 1 << 63


class ArgumentEncoder:
    """Encodes arguments; nodes and objects without a spelling go to the callbacks given."""

    def __init__(
        self,
        reference: Callable[[torch.fx.Node], Ref | Body],
        constant: Callable[[Any, str], Ref],
    ) -> None:
        self._reference = reference
        self._constant = constant

    def encode(self, value: Any) -> Arg:
        if isinstance(value, torch.fx.Node):
            return self._reference(value)
        if value is None or type(value) in (bool, str):
            return value  # type: ignore[no-any-return]
        if type(value) is int:
            return value if -_INT64 <= value < _INT64 else Literal("int", str(value))
        if type(value) is float:
            return value if math.isfinite(value) else Literal("float", str(value))
        if isinstance(value, torch.Size):
            return TupleArg(tuple(self.encode(item) for item in value))
        if isinstance(value, list):
            return ListArg(tuple(self.encode(item) for item in value))
        if type(value) is tuple:
            return TupleArg(tuple(self.encode(item) for item in value))
        if isinstance(value, dict):
            return DictArg(tuple((self.encode(k), self.encode(v)) for k, v in value.items()))
        if isinstance(value, slice):
            return SliceArg(self.encode(value.start), self.encode(value.stop), self.encode(value.step))
        return self._literal(value)

    def _literal(self, value: Any) -> Arg:
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            kind = type(value).__name__
            return Literal(kind, str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return Literal("device", str(value))
        if isinstance(value, complex):
            return Literal("complex", str(value))
        if value is Ellipsis:
            return Literal("ellipsis", "")
        if callable(value) and not isinstance(value, torch.nn.Module):
            name = qualified_name(value) if value.__hash__ is not None else None
            if name is not None:
                return Literal("op", name)
        return self._constant(value, "constant")
