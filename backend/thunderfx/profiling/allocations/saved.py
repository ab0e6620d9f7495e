"""What a forward saves for its backward, with the lines that made it. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from thunderfx.profiling.allocations.model import Checkpoint, Saved, SavedTensor
from thunderfx.profiling.allocations.recorder import Program, is_gradient, saved_names
from thunderfx.profiling.allocations.roles import place_of
from thunderfx.trace import BoundSymbol, Ref, TensorType, TraceCtx
from thunderfx.trace.bound_symbol import DEL

MAX_TENSORS = 200
MAX_CHECKPOINTS = 200
MIN_SHARE = 0.01
"""Share of all saved bytes below which a checkpoint is not worth a line."""
MEASURED = "measured in a step of its own"
ESTIMATED = "estimate: types of the traces"


class Pair(NamedTuple):
    """Both programs of a subgraph; ``storages`` holds address and bytes by the name of a saved value, as measured,
    without what was alive before the forward."""

    forward: Program
    backward: Program
    storages: Mapping[str, tuple[int, int]] | None = None


class _Kept(NamedTuple):
    """A saved storage: its first name, bytes, the line that made it, and the modules whose backward reads it."""

    name: str
    bytes: int
    line: int
    readers: frozenset[str]


def saved_for_backward(pairs: Sequence[Pair], containers: frozenset[str] = frozenset()) -> Saved:
    """What is saved of all subgraphs, inputs and parameters not counted: they live anyway.

    ``containers`` are paths of modules that are never called, such as a ``ModuleList``: nobody can checkpoint them.
    """
    tensors: list[SavedTensor] = []
    sums = _ModuleSums(containers)
    unknown = 0
    for pair in pairs:
        storages = Storages(pair.forward.trace)
        kept, missed = _kept(pair, storages)
        unknown += missed
        for item in kept:
            kind = storages.types.get(item.name)
            place = place_of(pair.forward, item.line)
            tensors.append(SavedTensor(item.name, item.bytes, str(kind) if kind else "", place))
        sums.add(pair, storages, kept)
    tensors.sort(key=lambda item: -item.bytes)
    return Saved(
        bytes=sum(item.bytes for item in tensors),
        count=len(tensors),
        source=MEASURED if pairs and all(pair.storages is not None for pair in pairs) else ESTIMATED,
        unknown=unknown,
        tensors=tuple(tensors[:MAX_TENSORS]),
        checkpoints=tuple(sums.checkpoints()[:MAX_CHECKPOINTS]),
    )


class Storages:
    """Which values of a trace share memory, by its views and its lines that work in place."""

    def __init__(self, trace: TraceCtx) -> None:
        self.roots = {var.name: var.name for var in trace.inputs}
        self.types = {var.name: var.type for var in trace.inputs}
        self.made_by: dict[str, int] = {}  #: root -> line
        for number, line in enumerate(trace.bound_symbols):
            base = _shared_operand(line)
            for var in line.defines():
                self.types[var.name] = var.type
                root = self.roots.get(base, base) if base is not None else var.name
                self.roots[var.name] = root
                if base is None:
                    self.made_by[var.name] = number


def _shared_operand(line: BoundSymbol) -> str | None:
    """The operand whose memory the line's output is; ``None`` where the output is memory of its own."""
    if line.has_tag("mutation"):
        for key, value in line.kwargs:
            if key in ("grad_input", "out") and isinstance(value, Ref):
                return value.name
    if line.has_tag("view") or (line.has_tag("mutation") and not line.unpack):
        return next((arg.name for arg in line.args if isinstance(arg, Ref)), None)
    return None


def _kept(pair: Pair, storages: Storages) -> tuple[list[_Kept], int]:
    """Saved storages, each once, and the number of those whose size is not known."""
    taken = [var.name for var in pair.backward.trace.inputs if not is_gradient(var.name, var.source)]
    readers = _readers(pair.backward.trace)
    found: dict[str | int, _Kept] = {}
    missed = 0
    for name, inside in zip(saved_names(pair.forward.trace, pair.backward.trace), taken, strict=False):
        root = storages.roots.get(name, name)
        line = storages.made_by.get(root)
        if line is None:  # an input
            continue
        key: str | int = root
        if pair.storages is None:
            size = _type_bytes(storages, root)
            if size is None:
                missed += isinstance(storages.types.get(name), TensorType)
                continue
        elif name in pair.storages:
            key, size = pair.storages[name]
        else:
            continue
        if key in found:
            found[key] = found[key]._replace(readers=found[key].readers | readers.get(inside, frozenset()))
        else:
            found[key] = _Kept(name, size, line, readers.get(inside, frozenset()))
    return list(found.values()), missed


def _type_bytes(storages: Storages, root: str) -> int | None:
    kind = storages.types.get(root)
    return kind.nbytes if isinstance(kind, TensorType) else None


def _readers(backward: TraceCtx) -> dict[str, frozenset[str]]:
    """For each input of the backward, modules of the lines that read it, also through views."""
    roots = Storages(backward).roots
    found: dict[str, set[str]] = {}
    for line in backward.bound_symbols:
        if line.symbol == DEL or line.has_tag("view"):
            continue
        module = _module(backward, line)
        for name in line.uses():
            found.setdefault(roots.get(name, name), set()).add(module)
    return {name: frozenset(modules) for name, modules in found.items()}


def _module(trace: TraceCtx, line: BoundSymbol) -> str:
    origin = trace.origin_of(line)
    return origin.module if origin is not None else ""


class _ModuleSums:
    """Bytes by module path: saved by its lines, needed by others anyway, and taken in without being saved so far."""

    def __init__(self, containers: frozenset[str]) -> None:
        self._containers = containers
        self._all = 0
        self._saved: dict[str, int] = {}
        self._kept: dict[str, int] = {}
        self._taken: dict[str, int] = {}

    def add(self, pair: Pair, storages: Storages, kept: Sequence[_Kept]) -> None:
        trace = pair.forward.trace
        saved_roots = {storages.roots.get(item.name, item.name) for item in kept}
        for item in kept:
            self._all += item.bytes
            for module in _ancestors(place_of(pair.forward, item.line).module):
                _count(self._saved, module, item.bytes)
                if not all(_is_inside(reader, module) for reader in item.readers):
                    _count(self._kept, module, item.bytes)
        taken: set[tuple[str, str]] = set()
        for line in trace.bound_symbols:
            if line.symbol == DEL:
                continue
            user = _module(trace, line)
            for name in line.uses():
                root = storages.roots.get(name, name)
                made = storages.made_by.get(root)
                if made is None or root in saved_roots:
                    continue
                maker = _module(trace, trace.bound_symbols[made])
                for module in _ancestors(user):
                    if not _is_inside(maker, module) and (module, root) not in taken:
                        taken.add((module, root))
                        _count(self._taken, module, _type_bytes(storages, root) or 0)

    def checkpoints(self) -> list[Checkpoint]:
        """Modules of one pattern together, those that save most first; without those that would save nothing."""
        patterns: dict[str, list[str]] = {}
        for module in self._saved:
            if module in self._containers:
                continue
            pattern = ".".join("*" if part.isdecimal() else part for part in module.split("."))
            patterns.setdefault(pattern, []).append(module)
        found = []
        for pattern, modules in patterns.items():
            saved = sum(self._saved[module] for module in modules)
            freed = [self._saved[module] - self._kept.get(module, 0) - self._taken.get(module, 0) for module in modules]
            useful = [size for size in freed if size > 0]
            if useful and sum(useful) >= MIN_SHARE * self._all:
                name = modules[0] if len(modules) == 1 else pattern
                found.append(Checkpoint(name, len(useful), saved, sum(useful)))
        return sorted(found, key=lambda item: -item.freed_bytes)


def _ancestors(module: str) -> Iterator[str]:
    """The module and those around it, without the whole model."""
    while module:
        yield module
        module = module.rpartition(".")[0]


def _is_inside(module: str, other: str) -> bool:
    return module == other or module.startswith(f"{other}.")


def _count(sums: dict[str, int], module: str, size: int) -> None:
    sums[module] = sums.get(module, 0) + size
