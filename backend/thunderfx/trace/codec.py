"""Traces as JSON. Decoding validates every field and runs nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from thunderfx.trace.trace import Constant, TraceCtx
from thunderfx.trace.types import TensorType

#: Tensor constants above this many bytes are stored by type only.
MAX_CONSTANT_BYTES = 1 << 20


class TraceDecodeError(ValueError):
    """The bytes are not a trace."""


def _encode_object(value: Any) -> Any:
    """A small dense tensor as dtype, shape and bytes; ``None`` for any other object."""
    import base64
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    if value.layout is not torch.strided or value.numel() * value.element_size() > MAX_CONSTANT_BYTES:
        return None
    with torch.no_grad():
        flat = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    data = base64.b64encode(bytes(flat.tolist())).decode("ascii")
    dtype = str(value.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": list(value.shape), "device": str(value.device), "data": data}


_encoder = msgspec.json.Encoder(enc_hook=_encode_object)
_decoder: msgspec.json.Decoder[TraceCtx] | None = None


def to_json(trace: TraceCtx) -> bytes:
    """Encode ``trace``; equal traces give equal bytes."""
    return _encoder.encode(trace.replace(constants=tuple(map(_storable, trace.constants))))


def _storable(constant: Constant) -> Constant:
    """Tensors, and what was read back, are stored; of any other object its type is: a dataclass would go in whole."""
    value = constant.value
    if isinstance(constant.type, TensorType) or value is None or isinstance(value, (bool, int, float, str, dict)):
        return constant
    return Constant(constant.name, constant.type)


def from_json(data: bytes | str) -> TraceCtx:
    """Decode a trace. Raises :class:`TraceDecodeError` with the place of the first fault."""
    global _decoder
    if _decoder is None:
        _decoder = msgspec.json.Decoder(TraceCtx)
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise TraceDecodeError(f"not a trace: {e}") from None
