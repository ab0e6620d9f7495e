"""Well-formedness of traces."""

from __future__ import annotations

import functools
import keyword
import re

from thunderfx.trace.bound_symbol import DEL, BoundSymbol
from thunderfx.trace.printer import print_arg
from thunderfx.trace.trace import TraceCtx
from thunderfx.trace.values import Arg, Body, DictArg, ListArg, Literal, Ref, SliceArg, TupleArg

_SYMBOL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
#: Names that printed programs use for themselves.
RESERVED = frozenset({"args", "torch", "aten", "operator", "math", "device", "inf", "nan"})
_FORBIDDEN = RESERVED | frozenset(keyword.kwlist)


#: Values that say all there is to check by their type.
_PLAIN = frozenset({int, str, float, bool, type(None)})


class TraceError(ValueError):
    """A trace is not well formed; the message names the trace, the line and the name."""


def _is_name(text: str) -> bool:
    return text.isidentifier() and text not in _FORBIDDEN


def check(trace: TraceCtx) -> None:
    """Raise :class:`TraceError` unless every use has a living definition and no name is defined twice.

    Also: names are Python identifiers, symbols are dotted identifiers, ``del`` never precedes a use.
    """
    alive: set[str] = set()
    seen: set[str] = set()

    def define(name: str) -> None:
        if name in seen:
            raise ValueError(f"{name!r} is defined twice")
        if not _is_name(name):
            raise ValueError(f"{name!r} is not a name that a trace may define")
        seen.add(name)
        alive.add(name)

    def check_arg(arg: Arg) -> None:
        """Raises ``ValueError`` for a name that is not alive and for a literal that is not what it claims to be."""
        kind = type(arg)
        if kind in _PLAIN:
            return
        if isinstance(arg, Ref):
            if arg.name not in alive:
                dead = arg.name in seen
                raise ValueError(f"{arg.name!r} is {'used after del' if dead else 'used but never defined'}")
        elif isinstance(arg, (ListArg, TupleArg)):
            for item in arg.items:
                check_arg(item)
        elif isinstance(arg, DictArg):
            for key, value in arg.items:
                check_arg(key)
                check_arg(value)
        elif isinstance(arg, SliceArg):
            for item in (arg.start, arg.stop, arg.step):
                check_arg(item)
        elif isinstance(arg, Body):
            check(arg.trace)
        elif isinstance(arg, Literal):
            print_arg(arg)

    where: str | tuple[int, BoundSymbol] = "header"
    try:
        if not _is_name(trace.name):
            raise ValueError(f"{trace.name!r} is not a name")
        where = "inputs"
        for var in trace.inputs:
            define(var.name)
        where = "constants"
        for const in trace.constants:
            define(const.name)
        for where in enumerate(trace.bound_symbols):
            line = where[1]
            _check_words(line)
            for arg in line.args:
                if type(arg) is not Ref or arg.name not in alive:
                    check_arg(arg)
            for _, arg in line.kwargs:
                check_arg(arg)
            if line.symbol == DEL:
                alive.difference_update(line.uses())
            for out in line.outputs:
                if out is not None:
                    define(out.name)
        where = "outputs"
        check_arg(trace.outputs)
    except TraceError:  # of a nested trace
        raise
    except ValueError as e:
        place = where if isinstance(where, str) else f"line {where[0]} ({where[1].symbol})"
        raise TraceError(f"trace {trace.name!r}, {place}: {e}") from None


@functools.lru_cache(maxsize=4096)
def _is_symbol(text: str) -> bool:
    return _SYMBOL.match(text) is not None and not any(map(keyword.iskeyword, text.split(".")))


def _check_words(line: BoundSymbol) -> None:
    if line.symbol != DEL and not _is_symbol(line.symbol):
        raise ValueError(f"{line.symbol!r} is not a qualified name")
    for key, _ in line.kwargs:
        if not (key.isidentifier() and not keyword.iskeyword(key)):
            raise ValueError(f"keyword {key!r} is not a name")
