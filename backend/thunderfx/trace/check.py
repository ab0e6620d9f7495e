"""Well-formedness of traces."""

from __future__ import annotations

import functools
import keyword
import re

from thunderfx.trace.bound_symbol import DEL, BoundSymbol, bodies_in, names_in
from thunderfx.trace.printer import print_arg
from thunderfx.trace.trace import TraceCtx
from thunderfx.trace.values import Arg, DictArg, ListArg, Literal, Ref, SliceArg, TupleArg

_SYMBOL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
#: Names that printed programs use for themselves.
RESERVED = frozenset({"args", "torch", "aten", "operator", "math", "device", "inf", "nan"})


class TraceError(ValueError):
    """A trace is not well formed; the message names the trace, the line and the name."""


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text) and text not in RESERVED


def check(trace: TraceCtx) -> None:
    """Raise :class:`TraceError` unless every use has a living definition and no name is defined twice.

    Also: names are Python identifiers, symbols are dotted identifiers, ``del`` never precedes a use.
    """
    alive: set[str] = set()
    seen: set[str] = set()

    def fail(where: str, what: str) -> None:
        raise TraceError(f"trace {trace.name!r}, {where}: {what}")

    def define(name: str, where: str) -> None:
        if not _is_name(name):
            fail(where, f"{name!r} is not a name that a trace may define")
        if name in seen:
            fail(where, f"{name!r} is defined twice")
        seen.add(name)
        alive.add(name)

    def use(name: str, where: str) -> None:
        if name not in alive:
            fail(where, f"{name!r} is used after del" if name in seen else f"{name!r} is used but never defined")

    def line_names(line: BoundSymbol, where: str) -> None:
        if line.symbol != DEL and not _is_symbol(line.symbol):
            fail(where, f"{line.symbol!r} is not a qualified name")
        for key, _ in line.kwargs:
            if not (key.isidentifier() and not keyword.iskeyword(key)):
                fail(where, f"keyword {key!r} is not a name")

    if not _is_name(trace.name):
        fail("header", f"{trace.name!r} is not a name")
    for var in trace.inputs:
        define(var.name, "inputs")
    for const in trace.constants:
        define(const.name, "constants")
    for number, line in enumerate(trace.bound_symbols):
        where = f"line {number} ({line.symbol})"
        line_names(line, where)
        for name in line.uses():
            use(name, where)
        if line.symbol == DEL:
            alive.difference_update(line.uses())
        for arg in (*line.args, *(value for _, value in line.kwargs)):
            if isinstance(arg, (bool, int, float, str, Ref)) or arg is None:
                continue
            for body in bodies_in(arg):
                check(body.trace)
            try:
                _check_literals(arg)
            except ValueError as e:
                fail(where, str(e))
        for var in line.defines():
            define(var.name, where)
    for name in names_in(trace.outputs):
        use(name, "outputs")


@functools.lru_cache(maxsize=4096)
def _is_symbol(text: str) -> bool:
    return _SYMBOL.match(text) is not None and not any(map(keyword.iskeyword, text.split(".")))


def _check_literals(arg: Arg) -> None:
    """Raise ``ValueError`` for a literal that cannot be printed as the constant that it claims to be."""
    if isinstance(arg, Literal):
        print_arg(arg)
    elif isinstance(arg, (ListArg, TupleArg)):
        for item in arg.items:
            _check_literals(item)
    elif isinstance(arg, DictArg):
        for key, value in arg.items:
            _check_literals(key)
            _check_literals(value)
    elif isinstance(arg, SliceArg):
        for item in (arg.start, arg.stop, arg.step):
            _check_literals(item)
