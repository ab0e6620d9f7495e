"""The trace: a straight-line program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from thunderfx.trace import bound_symbol as _bound_symbol
from thunderfx.trace import values as _values
from thunderfx.trace.bound_symbol import BoundSymbol, Origin
from thunderfx.trace.types import ValueType
from thunderfx.trace.values import Arg, ListArg, Variable


class Constant(msgspec.Struct, frozen=True, eq=False):
    """An object that the program refers to by name and that no argument can spell: a tensor, a process group.

    ``value`` is the live object in a trace that was compiled here; after decoding it is what the codec stored
    (``None`` for what it could not store).
    """

    name: str
    type: ValueType
    value: Any = None


class FusionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an executor generated for the line whose symbol is ``name``."""

    name: str
    executor: str
    source: str = ""
    statistics: dict[str, int | float | str] = {}


class TraceCtx(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A straight-line program: inputs, bound symbols, outputs, and where it came from.

    ``str(trace)`` prints it with types and origins; :meth:`python` prints the bare program that runs.
    """

    name: str
    inputs: tuple[Variable, ...]
    bound_symbols: tuple[BoundSymbol, ...]
    outputs: Arg = ListArg(())
    origins: tuple[Origin, ...] = ()
    constants: tuple[Constant, ...] = ()
    provenance: str = ""
    fusions: tuple[FusionRecord, ...] = ()

    @property
    def args(self) -> tuple[Variable, ...]:
        """The inputs, by the name that Thunder gives them."""
        return self.inputs

    @property
    def output(self) -> Arg:
        """The outputs, by the name that Thunder gives them."""
        return self.outputs

    def origin_of(self, line: BoundSymbol) -> Origin | None:
        """Origin of one of this trace's lines."""
        return None if line.origin is None or line.origin >= len(self.origins) else self.origins[line.origin]

    def replace(self, **changes: Any) -> TraceCtx:
        """A copy with fields changed."""
        return msgspec.structs.replace(self, **changes)

    def python(self, *, comments: bool = False) -> str:
        """The program as Python source; ``comments`` adds types and origins, which do not change what runs."""
        from thunderfx.trace.printer import print_trace

        return print_trace(self, comments=comments)

    def __str__(self) -> str:
        return self.python(comments=True)

    def python_callable(self) -> Callable[..., Any]:
        """Compile the program and return a callable that takes the inputs one by one. Imports torch.

        Raises ``TraceError`` where the trace is not well formed or names an operator or constant that is not here.
        """
        from thunderfx.codegen import unboxed

        return unboxed(self)

    def to_json(self) -> bytes:
        from thunderfx.trace.codec import to_json

        return to_json(self)


# Struct annotations that name later classes are resolved in the module that holds them.
for _module in (_values, _bound_symbol):
    _module.TraceCtx = TraceCtx  # type: ignore[attr-defined]
