"""lightning-thunder's traces as ours, for reading and comparing: they cannot be run as such.

Read by attribute only, so that nothing of lightning-thunder is imported (facts of 0.2.6: thunder/core/trace.py,
symbol.py and proxies.py): a trace has ``args``, ``bound_symbols`` and ``output``; a bound symbol ``sym`` (with
``name``, ``module``, ``executor`` and ``is_fusion``), ``args``, ``kwargs``, ``output`` and ``subsymbols``; a proxy has
a ``name`` and, for a tensor, ``shape``, ``dtype``, ``device`` and ``requires_grad``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from thunderfx.trace import (
    Arg,
    BoundSymbol,
    DictArg,
    ListArg,
    Literal,
    OpaqueType,
    Ref,
    TensorType,
    TraceCtx,
    TupleArg,
    ValueType,
    Variable,
)
from thunderfx.trace.bound_symbol import DEL

#: Symbols that only take the arguments apart.
_UNPACKING = ("unpack", "check_", "clear_mutable_collection", "comment", "python_return", "return_none")


def from_thunder(trace: Any, name: str) -> TraceCtx:
    """``trace`` under the name ``"forward"`` or ``"backward"``."""
    reader = _Reader()
    inputs = tuple(reader.define(proxy) for proxy in _proxies(trace.args) if hasattr(proxy, "shape"))
    lines = tuple(line for bound in trace.bound_symbols for line in reader.lines(bound))
    return TraceCtx(
        name=name,
        inputs=inputs,
        bound_symbols=lines,
        outputs=reader.argument(trace.output),
        provenance=f"{name}, of lightning-thunder",
    )


class _Reader:
    def __init__(self) -> None:
        self.defined: set[str] = set()

    def define(self, proxy: Any) -> Variable:
        self.defined.add(proxy.name)
        return Variable(proxy.name, _type(proxy))

    def lines(self, bound: Any) -> Iterator[BoundSymbol]:
        symbol = str(bound.sym.name)
        if symbol == "python_del":
            gone = [proxy.name for proxy in _proxies(bound.args) if proxy.name in self.defined]
            if gone:
                self.defined.difference_update(gone)
                yield BoundSymbol(DEL, tuple(map(Ref, gone)))
            return
        if symbol.startswith(_UNPACKING):
            return
        args = tuple(map(self.argument, bound.args))
        kwargs = tuple((str(key), self.argument(value)) for key, value in bound.kwargs.items())
        is_fusion = bool(getattr(bound.sym, "is_fusion", False))
        members = tuple(line for member in bound.subsymbols for line in _Reader().members(member)) if is_fusion else ()
        outputs = tuple(self.define(proxy) for proxy in _proxies(bound.output) if proxy.name not in self.defined)
        executor = getattr(bound.sym, "executor", None)
        yield BoundSymbol(
            symbol=_symbol(bound.sym),
            args=args,
            kwargs=kwargs,
            outputs=outputs,
            unpack=isinstance(bound.output, (tuple, list)) and bool(outputs),
            executor=str(getattr(executor, "name", "") or "torch"),
            subsymbols=members,
            tags=("fused",) if is_fusion else (),
        )

    def members(self, bound: Any) -> Iterator[BoundSymbol]:
        """Lines of a fusion: their operands are defined outside of it."""
        self.defined.update(proxy.name for proxy in _proxies((bound.args, bound.kwargs)))
        return self.lines(bound)

    def argument(self, value: Any) -> Arg:
        if value is None or type(value) in (bool, str):
            return value  # type: ignore[no-any-return]
        if type(value) is int:
            return value if -(1 << 63) <= value < 1 << 63 else Literal("int", str(value))
        if type(value) is float:
            return value if math.isfinite(value) else Literal("float", str(value))
        if isinstance(value, list):
            return ListArg(tuple(map(self.argument, value)))
        if isinstance(value, tuple):
            return TupleArg(tuple(map(self.argument, value)))
        if isinstance(value, dict):
            return DictArg(tuple((self.argument(key), self.argument(item)) for key, item in value.items()))
        name = getattr(value, "name", None)
        if isinstance(name, str) and name in self.defined:
            return Ref(name)
        return str(value)


def _proxies(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _proxies(item)
    elif isinstance(value, dict):
        yield from _proxies(list(value.values()))
    elif isinstance(getattr(value, "name", None), str) and value.name.isidentifier():
        yield value


def _symbol(sym: Any) -> str:
    module = getattr(sym.module, "__name__", "") or "thunder"
    return f"{module.removeprefix('thunder.core.')}.{sym.name}"


def _type(proxy: Any) -> ValueType:
    if not hasattr(proxy, "shape"):
        return OpaqueType(type(proxy).__name__)
    return TensorType(
        dtype=str(proxy.dtype).rpartition(".")[2].rstrip("_"),
        shape=tuple(size if isinstance(size, int) else str(size) for size in proxy.shape),
        device=str(getattr(proxy.device, "device_str", lambda: proxy.device)()),
        requires_grad=bool(getattr(proxy, "requires_grad", False)),
    )
