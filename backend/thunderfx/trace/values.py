"""Values that may stand as arguments of a line: names and constants.

``None``, ``bool``, ``int`` (64 bits), finite ``float`` and ``str`` stand for themselves; all else has a tagged form,
so that every argument survives JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import msgspec

from thunderfx.trace.types import ValueType

if TYPE_CHECKING:
    from thunderfx.trace.trace import TraceCtx


class Variable(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A name that a trace defines, with its type. ``source`` says what an input is (``"blocks.0.attn.weight"``)."""

    name: str
    type: ValueType
    source: str = ""


class Ref(msgspec.Struct, gc=False, frozen=True, array_like=True, tag="v"):
    """Use of a defined name."""

    name: str


class Literal(msgspec.Struct, gc=False, frozen=True, array_like=True, tag="c"):
    """A constant that JSON does not know.

    ``kind`` is one of ``dtype``, ``layout``, ``memory_format`` (text is the torch name without ``torch.``), ``device``
    (``"cuda:0"``), ``float`` (``inf``, ``-inf``, ``nan``), ``complex`` (``"1+2j"``), ``int`` (beyond 64 bits),
    ``ellipsis``, ``op`` (qualified name of an operator that is passed as an argument).
    """

    kind: str
    text: str


class SliceArg(msgspec.Struct, gc=False, frozen=True, array_like=True, tag="s"):
    start: Arg
    stop: Arg
    step: Arg


class ListArg(msgspec.Struct, gc=False, frozen=True, array_like=True, tag="l"):
    items: tuple[Arg, ...]


class TupleArg(msgspec.Struct, gc=False, frozen=True, array_like=True, tag="t"):
    items: tuple[Arg, ...]


class DictArg(msgspec.Struct, gc=False, frozen=True, array_like=True, tag="d"):
    items: tuple[tuple[Arg, Arg], ...]


class Body(msgspec.Struct, gc=False, frozen=True, array_like=True, tag="b"):
    """The body of a higher-order operator: a nested trace."""

    trace: TraceCtx


Arg = Union[None, bool, int, float, str, Ref, Literal, SliceArg, ListArg, TupleArg, DictArg, Body]
