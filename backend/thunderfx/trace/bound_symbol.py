"""One line of a trace, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thunderfx.trace.values import Arg, Body, DictArg, ListArg, Ref, SliceArg, TupleArg, Variable

#: Symbol of the line that ends the life of names.
DEL = "python.del"
#: Arguments in which a nested trace may stand.
_NESTING = frozenset({Body, ListArg, TupleArg})


class Origin(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Where a line comes from. A backward line has the origin of the forward call that it differentiates."""

    module: str = ""  #: module path, ``"blocks.0.attn"``
    call: str = ""  #: torch-level call, ``"linear"``
    file: str = ""  #: user's file, ``""`` where unknown
    line: int = 0
    source: str = ""  #: text of that line, stripped

    def __str__(self) -> str:
        where = f"{self.file.rsplit('/', 1)[-1]}:{self.line}" if self.file else ""
        return " | ".join(part for part in (self.module, where, self.source) if part)


class BoundSymbol(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """A symbol applied to arguments.

    ``symbol`` is a qualified name (``aten.addmm.default``). ``outputs`` holds the names that the line defines; with
    ``unpack`` the call returns a sequence of which each item is named (``None``: not needed). ``origin`` is an index
    into the trace's ``origins``. ``subsymbols`` are the lines that this one runs in one call: the members of a fusion,
    or the line in whose place an executor runs something of its own. ``why`` says why a line stayed out of fusions.
    """

    symbol: str
    args: tuple[Arg, ...] = ()
    kwargs: tuple[tuple[str, Arg], ...] = ()
    outputs: tuple[Variable | None, ...] = ()
    unpack: bool = False
    executor: str = "torch"
    origin: int | None = None
    subsymbols: tuple[BoundSymbol, ...] = ()
    tags: tuple[str, ...] = ()
    why: str = ""

    def uses(self) -> Iterator[str]:
        """Names that the line reads, in order, repeated where used twice."""
        for arg in self.args:
            yield from names_in(arg)
        for _, arg in self.kwargs:
            yield from names_in(arg)

    def defines(self) -> Iterator[Variable]:
        """Variables that the line defines."""
        return (out for out in self.outputs if out is not None)

    def bodies(self) -> list[Body]:
        """Nested traces among the line's arguments: seldom any, and asked of each line of a trace."""
        found: list[Body] = []
        for arg in (*self.args, *[value for _, value in self.kwargs]) if self.kwargs else self.args:
            if isinstance(arg, (ListArg, TupleArg)):
                for item in arg.items:
                    if type(item) in _NESTING:
                        found += bodies_in(item)
            elif isinstance(arg, Body):
                found.append(arg)
        return found

    def renamed(self, rename: dict[str, str]) -> BoundSymbol:
        """The line with the names that it reads replaced as ``rename`` says."""
        if not any(name in rename for name in self.uses()):
            return self
        return msgspec.structs.replace(
            self,
            args=tuple(map_names(arg, rename) for arg in self.args),
            kwargs=tuple((key, map_names(value, rename)) for key, value in self.kwargs),
        )

    def has_tag(self, tag: str) -> bool:
        return tag in self.tags


def names_in(arg: Arg) -> Iterator[str]:
    """Names that ``arg`` refers to; a nested trace is closed and refers to none."""
    if isinstance(arg, Ref):
        yield arg.name
    elif isinstance(arg, (ListArg, TupleArg)):
        for item in arg.items:
            yield from names_in(item)
    elif isinstance(arg, DictArg):
        for key, value in arg.items:
            yield from names_in(key)
            yield from names_in(value)
    elif isinstance(arg, SliceArg):
        for item in (arg.start, arg.stop, arg.step):
            yield from names_in(item)


def map_names(arg: Arg, rename: dict[str, str]) -> Arg:
    """``arg`` with names replaced as ``rename`` says; names that it lacks stay."""
    if isinstance(arg, Ref):
        new = rename.get(arg.name)
        return arg if new is None else Ref(new)
    if isinstance(arg, (ListArg, TupleArg)):
        return type(arg)(tuple(map_names(item, rename) for item in arg.items))
    if isinstance(arg, DictArg):
        return DictArg(tuple((map_names(k, rename), map_names(v, rename)) for k, v in arg.items))
    if isinstance(arg, SliceArg):
        return SliceArg(map_names(arg.start, rename), map_names(arg.stop, rename), map_names(arg.step, rename))
    return arg


def bodies_in(arg: Arg) -> Iterator[Body]:
    """Nested traces in ``arg``."""
    if isinstance(arg, Body):
        yield arg
    elif isinstance(arg, (ListArg, TupleArg)):
        for item in arg.items:
            if type(item) in _NESTING:
                yield from bodies_in(item)
