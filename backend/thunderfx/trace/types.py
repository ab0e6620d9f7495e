"""Types of the values that flow through a trace."""

from __future__ import annotations

from typing import Union

import msgspec

#: Size or stride of one dimension: a number, or the text of a symbolic expression ("s0", "2*s0 + 1").
Dim = Union[int, str]

_SHORT_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "b8",
}

_ITEM_BYTES = {"bool": 1, "complex32": 4, "complex64": 8, "complex128": 16}


def short_dtype(dtype: str) -> str:
    """``"float32"`` -> ``"f32"``; a dtype without a short form keeps its name."""
    return _SHORT_DTYPES.get(dtype, dtype)


def item_bytes(dtype: str) -> int:
    """Bytes of one element of ``dtype`` (a torch dtype name), 0 where the name does not tell."""
    if dtype in _ITEM_BYTES:
        return _ITEM_BYTES[dtype]
    digits = "".join(c if c.isdigit() else " " for c in dtype).split()
    return max(1, int(digits[0]) // 8) if digits else 0


class TensorType(msgspec.Struct, gc=False, frozen=True, tag="tensor", omit_defaults=True):
    """Type of a tensor value.

    ``dtype`` and ``layout`` are torch's names without the ``torch.`` prefix. ``stride`` counts elements and is
    ``None`` for a contiguous tensor.
    """

    dtype: str
    shape: tuple[Dim, ...]
    device: str = "cpu"
    stride: tuple[Dim, ...] | None = None
    requires_grad: bool = False
    layout: str = "strided"

    def __str__(self) -> str:
        text = f"{self.device} {short_dtype(self.dtype)}[{', '.join(map(str, self.shape))}]"
        if self.stride is not None:
            text += f" stride({', '.join(map(str, self.stride))})"
        return text if self.layout == "strided" else f"{text} {self.layout}"

    @property
    def nbytes(self) -> int | None:
        """Bytes of a dense tensor of this type; ``None`` where a size is symbolic."""
        total = item_bytes(self.dtype)
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            total *= dim
        return total


class ScalarType(msgspec.Struct, gc=False, frozen=True, tag="scalar", omit_defaults=True):
    """A Python or symbolic scalar: ``kind`` is ``SymInt``, ``int``, ``bool``, ...; ``value`` its text when known."""

    kind: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.value}" if self.value else self.kind


class SequenceType(msgspec.Struct, gc=False, frozen=True, tag="sequence"):
    """A list or tuple that one name holds, with the type of each item."""

    items: tuple[ValueType, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"


class OpaqueType(msgspec.Struct, gc=False, frozen=True, tag="opaque"):
    """Any other Python object, known by the name of its class only."""

    text: str

    def __str__(self) -> str:
        return self.text


ValueType = Union[TensorType, ScalarType, SequenceType, OpaqueType]
