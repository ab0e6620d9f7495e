"""From the qualified name of a symbol to the object that runs it.

Only operators can be named: a stored trace that is replayed cannot reach the rest of Python through a dotted name.
"""

from __future__ import annotations

import importlib
import math
import operator
from typing import Any

import torch

from thunderfx.trace import TraceError

#: Namespaces of torch whose public members a torch-level line may name.
_FUNCTION_SPACES = tuple(
    f"torch.{space}." for space in ("nn.functional", "Tensor", "linalg", "fft", "special", "_C._nn")
)
_SYM_FUNCTIONS = ("sym_int", "sym_float", "sym_max", "sym_min", "sym_not", "sym_ite", "sym_sum", "sym_sqrt")
#: dtypes, layouts and memory formats are named as ``torch.<name>`` too.
_CONSTANT_TYPES = (torch.dtype, torch.layout, torch.memory_format)


def _walk(root: Any, path: list[str], name: str) -> Any:
    for part in path:
        if part.startswith("__"):
            raise TraceError(f"{name!r} is not an operator")
        try:
            root = getattr(root, part)
        except (AttributeError, RuntimeError):
            raise TraceError(f"{name!r} is not an operator of this torch ({torch.__version__})") from None
    return root


def resolve(name: str) -> Any:
    """The object called ``name``. Raises ``TraceError`` for a name that is no operator or torch constant."""
    head, *rest = name.split(".")
    if head == "aten" and len(rest) == 2:
        return _walk(torch.ops.aten, rest, name)
    if name.startswith("torch.ops.higher_order.") and len(rest) == 3:
        found = _walk(torch.ops.higher_order, rest[2:], name)
        if isinstance(found, torch._ops.HigherOrderOperator):
            return found
    elif name.startswith("torch.ops.") and len(rest) in (3, 4):
        if rest[1] == "thunderfx":
            importlib.import_module("thunderfx.executors.attention")  # registers them
        found = _walk(torch.ops, rest[1:], name)
        if isinstance(found, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
            return found
    elif head in ("operator", "math") and len(rest) == 1 and not rest[0].startswith("_"):
        found = _walk(operator if head == "operator" else math, rest, name)
        if callable(found) and rest[0] not in ("attrgetter", "methodcaller", "call"):
            return found
    elif head == "torch" and len(rest) == 1:
        if hasattr(torch._C._VariableFunctions, rest[0]) or rest[0] in _SYM_FUNCTIONS:
            return _walk(torch, rest, name)
        found = getattr(torch, rest[0], None)
        if isinstance(found, _CONSTANT_TYPES) or found is torch.device:
            return found
    elif name.startswith(_FUNCTION_SPACES):
        found = _walk(torch, rest, name)
        if callable(found) and not isinstance(found, type(torch)):
            return found
    raise TraceError(f"{name!r} is not an operator that a trace may call")
