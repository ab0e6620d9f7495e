"""Attention as one line in each direction, with the kernel that runs it shown.

PyTorch chooses among flash, memory-efficient, cuDNN and the plain formula by device, dtype, shapes, mask and dropout.
A fused kernel is one operator with one backward operator already; where the choice is the plain formula, AOTAutograd
would trace some twenty operators, and :mod:`thunderfx.executors.attention` stands in for them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from thunderfx.executors.base import OperatorExecutor
from thunderfx.trace import BoundSymbol, Literal, Ref, TensorType, TraceCtx, ValueType

_CALL = "torch.nn.functional.scaled_dot_product_attention"
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
_DEFAULTS: dict[str, Any] = {
    "attn_mask": None,
    "dropout_p": 0.0,
    "is_causal": False,
    "scale": None,
    "enable_gqa": False,
}
_KERNELS = {
    "aten._scaled_dot_product_flash_attention": "flash",
    "aten._scaled_dot_product_fused_attention_overrideable": "overrideable",
    "aten._scaled_dot_product_efficient_attention": "memory-efficient",
    "aten._scaled_dot_product_cudnn_attention": "cudnn",
    "torch.ops.thunderfx.attention": "math",
}


class SdpaExecutor(OperatorExecutor):
    """``"sdpa"``."""

    name = "sdpa"

    def can_execute(self, line: BoundSymbol) -> bool:
        return _kernel(line) is not None

    def tags(self, line: BoundSymbol) -> tuple[str, ...]:
        kernel = _kernel(line)
        return () if kernel is None else (kernel,)

    def rewrite(self, trace: TraceCtx) -> TraceCtx:
        types = {var.name: var.type for var in trace.inputs}
        types |= {var.name: var.type for line in trace.bound_symbols for var in line.defines()}
        lines = tuple(_kept(line, types) for line in trace.bound_symbols)
        return trace if lines == trace.bound_symbols else trace.replace(bound_symbols=lines)


def _kernel(line: BoundSymbol) -> str | None:
    return next((kernel for start, kernel in _KERNELS.items() if line.symbol.startswith(start)), None)


def _kept(line: BoundSymbol, types: dict[str, ValueType]) -> BoundSymbol:
    """``line``, or one call of the plain formula for it where torch would choose that."""
    if line.symbol != _CALL:
        return line
    given = _DEFAULTS | dict(zip(_PARAMETERS, line.args, strict=False)) | dict(line.kwargs)
    plain = {name: given[name] for name in ("dropout_p", "is_causal", "scale", "enable_gqa")}
    if any(isinstance(value, (Ref, Literal)) for value in plain.values()):
        return line  # a number that only the run tells
    tensors = [given.get(name) for name in _PARAMETERS[:4]]
    known = [types.get(arg.name) if isinstance(arg, Ref) else None for arg in tensors]
    shapes = [kind.shape for kind in known if isinstance(kind, TensorType)]
    if any(kind is not None and not isinstance(kind, TensorType) for kind in known) or len(shapes) < 3:
        return line
    if any(len(shape) != 4 or any(isinstance(size, str) for size in shape) for shape in shapes[:3]):
        return line
    if plain["is_causal"] and tensors[3] is not None:
        return line  # torch refuses it, with a message of its own
    if _has_kernel([kind for kind in known if isinstance(kind, TensorType)], plain):
        return line
    args = (*tensors, float(plain["dropout_p"]), plain["is_causal"], plain["scale"])
    return msgspec.structs.replace(
        line,
        symbol="torch.ops.thunderfx.attention.default",
        args=args,
        kwargs=(),
        outputs=(*line.outputs, None, None),
        unpack=True,
        tags=("random",),
    )


class _Called(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of the operators that run under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def _has_kernel(types: list[TensorType], plain: dict[str, Any]) -> bool:
    """Whether torch chooses a fused kernel for tensors of these types: it is called with fake ones."""
    with FakeTensorMode():
        q, k, v, *mask = [
            torch.empty(
                [int(size) for size in kind.shape],
                dtype=getattr(torch, kind.dtype),
                device=kind.device,
                requires_grad=kind.requires_grad,
            )
            for kind in types
        ]
        with _Called() as called:
            torch.nn.functional.scaled_dot_product_attention(q, k, v, mask[0] if mask else None, **plain)
    return any("_scaled_dot_product_" in name and "_math" not in name for name in called.names)
