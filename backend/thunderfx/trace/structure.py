"""Keys that say what a line is, whatever its names and source lines are.

A key is made of plain tuples and strings, so that its ``repr`` does not depend on names or on the process. The
interner turns equal keys into equal numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import msgspec

from thunderfx.trace.bound_symbol import DEL, BoundSymbol
from thunderfx.trace.trace import TraceCtx
from thunderfx.trace.types import ValueType
from thunderfx.trace.values import Arg, Body, DictArg, ListArg, Ref, SliceArg, TupleArg, Variable

#: Stands for any use of a name in a skeleton.
NAME = "$"


class Interner:
    """Numbers for keys, and cached texts of types; shared by the two traces that are compared."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self._types: dict[ValueType, str] = {}

    def number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def type_text(self, type_: ValueType) -> str:
        text = self._types.get(type_)
        if text is None:
            grad = " requires_grad" if getattr(type_, "requires_grad", False) else ""
            text = self._types[type_] = f"{type_}{grad}"
        return text


class LineParts(msgspec.Struct, frozen=True, gc=False):
    """The structure of one line in parts that can change by themselves."""

    symbol: str
    skeleton: Hashable  #: arguments with names replaced by ``NAME``
    types: tuple[str, ...]
    module: str
    executor: str
    tags: tuple[str, ...]
    members: Hashable
    uses: tuple[str, ...]


class Structure(msgspec.Struct):
    """A trace as parts: its lines without ``del``, and where each of them stood."""

    trace: TraceCtx
    indices: list[int]
    lines: list[BoundSymbol]
    parts: list[LineParts]
    own: list[int]  #: number of the key of a line without its operands and its executor
    inputs: list[Variable]  #: inputs, then constants
    input_keys: list[tuple[str, str]]
    output_skeleton: Hashable
    output_uses: tuple[str, ...]
    definition: dict[str, int]  #: line that defines a name; input ``i`` is ``-1 - i``


def skeleton(arg: Arg, uses: list[str]) -> Hashable:
    """``arg`` without names, which are appended to ``uses`` in order."""
    kind = type(arg)
    if kind is Ref:
        uses.append(arg.name)  # type: ignore[union-attr]
        return NAME
    if kind is int or kind is bool or arg is None:
        return repr(arg)
    if kind is str or kind is float:
        return kind.__name__, repr(arg)
    if isinstance(arg, (ListArg, TupleArg)):
        return kind.__name__, tuple([skeleton(item, uses) for item in arg.items])
    if isinstance(arg, DictArg):
        return "dict", tuple([(skeleton(k, uses), skeleton(v, uses)) for k, v in arg.items])
    if isinstance(arg, SliceArg):
        return "slice", tuple([skeleton(item, uses) for item in (arg.start, arg.stop, arg.step)])
    if isinstance(arg, Body):
        return "body", body_key(arg.trace)
    return "literal", getattr(arg, "kind", ""), getattr(arg, "text", repr(arg))


def program_key(lines: Iterable[BoundSymbol], order: dict[str, int]) -> Hashable:
    """Key of a small program: names count by the order in which they appear; ``order`` holds those known before."""
    out = []
    for line in lines:
        if line.symbol == DEL:
            continue
        uses: list[str] = []
        shape = (
            line.symbol,
            tuple([skeleton(arg, uses) for arg in line.args]),
            tuple([(key, skeleton(value, uses)) for key, value in line.kwargs]),
        )
        wiring = tuple([order.setdefault(name, len(order)) for name in uses])
        for var in line.defines():
            order.setdefault(var.name, len(order))
        out.append((shape, wiring, tuple([str(var.type) for var in line.defines()])))
    return tuple(out)


def body_key(trace: TraceCtx) -> Hashable:
    """Key of the body of a higher-order operator."""
    order = {var.name: i for i, var in enumerate(trace.inputs)}
    lines = program_key(trace.bound_symbols, order)
    uses: list[str] = []
    outputs = skeleton(trace.outputs, uses)
    inputs = tuple([str(var.type) for var in trace.inputs])
    return inputs, lines, outputs, tuple([order.get(name, -1) for name in uses])


def _symbol_key(line: BoundSymbol) -> str:
    """Symbol of the line; the running number of a fusion says nothing."""
    return line.symbol.rstrip("0123456789") if line.subsymbols else line.symbol


def structure(trace: TraceCtx, interner: Interner) -> Structure:
    """Take ``trace`` apart."""
    modules = [origin.module for origin in trace.origins]
    type_text = interner.type_text
    numbers = interner.numbers
    out = Structure(trace, [], [], [], [], [], [], None, (), {})
    definition = out.definition
    out.inputs = [*trace.inputs, *(Variable(c.name, c.type, "constant") for c in trace.constants)]
    for i, var in enumerate(out.inputs):
        definition[var.name] = -1 - i
        out.input_keys.append((var.source, type_text(var.type)))
    for i, constant in enumerate(trace.constants):
        if isinstance(constant.value, (dict, str, int, float)):
            at = len(trace.inputs) + i
            out.input_keys[at] = ("constant", f"{out.input_keys[at][1]} {constant.value!r}")
    for index, line in enumerate(trace.bound_symbols):
        if line.symbol == DEL:
            continue
        uses: list[str] = []
        shape: tuple[Any, ...] = tuple([skeleton(arg, uses) for arg in line.args])
        if line.kwargs:
            shape += tuple([(key, skeleton(value, uses)) for key, value in line.kwargs])
        at = len(out.lines)
        types = []
        for out_var in line.outputs:
            if out_var is None:
                types.append("_")
            else:
                types.append(type_text(out_var.type))
                definition[out_var.name] = at
        origin = line.origin
        parts = LineParts(
            _symbol_key(line),
            shape,
            tuple(types),
            "" if origin is None or origin >= len(modules) else modules[origin],
            line.executor,
            line.tags,
            program_key(line.subsymbols, {}) if line.subsymbols else (),
            tuple(uses),
        )
        key = (parts.symbol, shape, parts.types, parts.module, parts.tags, parts.members, line.unpack)
        out.indices.append(index)
        out.lines.append(line)
        out.parts.append(parts)
        out.own.append(numbers.setdefault(key, len(numbers)))
    uses = []
    out.output_skeleton = skeleton(trace.outputs, uses)
    out.output_uses = tuple(uses)
    return out


def wiring(s: Structure) -> list[tuple[int, ...]]:
    """For each line, which lines (and, as negative numbers, inputs) its operands come from."""
    get = s.definition.get
    undefined = len(s.lines)
    return [tuple([get(name, undefined) for name in parts.uses]) for parts in s.parts]


#: Two lines with one of these tags never compute the same value.
IMPURE = frozenset({"random", "mutation", "collective"})


def first_names(s: Structure) -> dict[str, str]:
    """For each name that repeats a value: the first name that has it. Values are numbered by line and operands."""
    first: dict[str, str] = {}
    lines: dict[tuple[int, tuple[str, ...]], BoundSymbol] = {}
    for line, own, parts in zip(s.lines, s.own, s.parts, strict=True):
        if not IMPURE.isdisjoint(line.tags):
            continue
        twin = lines.setdefault((own, tuple([first.get(name, name) for name in parts.uses])), line)
        if twin is not line:
            for mine, theirs in zip(line.outputs, twin.outputs, strict=True):
                if mine is not None and theirs is not None:
                    first[mine.name] = theirs.name
    return first
