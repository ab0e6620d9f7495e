"""Constants of a trace as live objects."""

from __future__ import annotations

import base64
import math
from typing import Any

import torch

from thunderfx.trace import Constant, TensorType, TraceError


def revive(trace_name: str, constant: Constant) -> Any:
    """The live object, rebuilt from what the codec stored where the trace was read back.

    Raises ``TraceError`` where the stored trace holds the constant's type only.
    """
    value = constant.value
    if isinstance(constant.type, TensorType) and not isinstance(value, torch.Tensor):
        if isinstance(value, dict):
            return _tensor(trace_name, constant.name, value)
        value = None
    if value is None:
        raise TraceError(
            f"trace {trace_name!r}: constant {constant.name!r} ({constant.type}) was stored by its type only"
        )
    if isinstance(value, (dict, list, str)):
        raise TraceError(f"trace {trace_name!r}: constant {constant.name!r} is not an object that can be rebuilt")
    return value


def _tensor(trace_name: str, name: str, stored: dict[str, Any]) -> torch.Tensor:
    try:
        dtype = getattr(torch, str(stored["dtype"]))
        shape = [int(size) for size in stored["shape"]]
        data = base64.b64decode(stored["data"], validate=True)
        if not isinstance(dtype, torch.dtype) or math.prod(shape) * dtype.itemsize != len(data):
            raise ValueError("its size does not fit its type")
        raw = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        return raw.view(dtype).reshape(shape).to(str(stored.get("device", "cpu")))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as e:
        raise TraceError(f"trace {trace_name!r}: stored tensor {name!r} is damaged: {e}") from None
