"""Regions of lines that a fusion executor runs in one call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from thunderfx.executors import Executor, Fusion, FusionExecutor, OperatorExecutor, Region
from thunderfx.passes.effects import families
from thunderfx.passes.place import said_no
from thunderfx.passes.regions import in_order, regions
from thunderfx.trace import (
    Arg,
    BoundSymbol,
    Constant,
    FusionRecord,
    ListArg,
    OpaqueType,
    Ref,
    ScalarType,
    TensorType,
    TraceCtx,
    TupleArg,
    Variable,
)
from thunderfx.trace.printer import returned_names

#: Told of a region that an executor failed to compile.
OnFailure = Callable[[FusionExecutor, Exception], None]


class Fusing:
    """The fusion pass for one direction of one subgraph.

    ``values`` are fake tensors and symbolic numbers by name; ``visible`` how many of the first outputs, from which on,
    the user sees (``None``: all); ``on_failure`` is told what did not compile.
    """

    def __init__(
        self,
        executors: Sequence[Executor],
        values: Mapping[str, Any],
        *,
        differentiated: bool,
        visible: range | None,
        on_failure: OnFailure,
    ) -> None:
        self.executors = executors
        self.fusers = [executor for executor in executors if isinstance(executor, FusionExecutor)]
        self.values = values
        self.differentiated = differentiated
        self.visible = visible
        self.on_failure = on_failure

    def __call__(self, trace: TraceCtx) -> TraceCtx:
        """Replace each region by one line that has its lines as members."""
        whole = self._whole(trace)
        if whole is not None:
            return whole
        for executor in self.fusers:
            trace = self._fuse(trace, executor)
        return trace

    def _whole(self, trace: TraceCtx) -> TraceCtx | None:
        """The trace as one fusion of the first executor, where that takes and can compile it."""
        first = self.executors[0]
        if not isinstance(first, FusionExecutor) or not first.takes_whole or not trace.bound_symbols:
            return None
        objects = {const.name for const in trace.constants}
        if any(line.symbol in objects or said_no(first, line) for line in trace.bound_symbols):
            return None
        result = trace.outputs
        if not isinstance(result, (ListArg, TupleArg)) or not any(isinstance(item, Ref) for item in result.items):
            return None
        members = trace.bound_symbols
        region = self._region(trace, members, result.items, is_whole=True)
        if region is None:
            return None
        compiled = self._compile(first, region)
        return None if compiled is None else _with_fusions(trace, first, [(members, region, compiled)], [0])

    def _fuse(self, trace: TraceCtx, executor: FusionExecutor) -> TraceCtx:
        lines = list(trace.bound_symbols)
        found = regions(trace, [line.executor == executor.name for line in lines])
        made: list[tuple[tuple[BoundSymbol, ...], Region, Fusion]] = []
        groups: list[list[int]] = []
        for group in found:
            members = tuple(lines[number] for number in group)
            region, reason = None, ""
            if sum(not line.has_tag("view") for line in members) < executor.min_lines:
                reason = "too little to fuse: its neighbours run outside"
            else:
                region = self._region(trace, members, tuple(map(Ref, _leaving(trace, group))), is_whole=False)
                reason = "" if region is not None else "an input's type was not kept"
            compiled = None
            if region is not None:
                compiled = self._compile(executor, region)
                reason = "" if compiled is not None else "its region did not compile"
            if compiled is None or region is None:
                for number in group:
                    lines[number] = self._handed_on(lines[number], executor, reason)
                continue
            groups.append(group)
            made.append((members, region, compiled))
        trace = trace.replace(bound_symbols=tuple(lines))
        if not made:
            return trace
        return _with_fusions(trace, executor, made, in_order(trace, groups))

    def _handed_on(self, line: BoundSymbol, executor: FusionExecutor, reason: str) -> BoundSymbol:
        """The line with the next executor that runs it."""
        later = self.executors[self.executors.index(executor) + 1 :]
        why = "; ".join(filter(None, (line.why, f"{executor.name}: {reason}")))
        for other in later:
            can = not said_no(other, line) if isinstance(other, FusionExecutor) else _executes(other, line)
            if can:
                return msgspec.structs.replace(line, executor=other.name, why=why)
        raise AssertionError("the torch executor runs every line")

    def _region(
        self, trace: TraceCtx, members: Sequence[BoundSymbol], outputs: tuple[Arg, ...], *, is_whole: bool
    ) -> Region | None:
        """``members`` as a trace of their own; ``None`` where an input is not known by value."""
        types = {var.name: var for var in trace.inputs}
        types |= {const.name: Variable(const.name, const.type) for const in trace.constants}
        types |= {var.name: var for line in trace.bound_symbols for var in line.defines()}
        inside = {var.name for line in members for var in line.defines()}
        used = dict.fromkeys(name for line in members for name in line.uses() if name not in inside)
        if is_whole:
            used = dict.fromkeys([*(var.name for var in trace.inputs), *used])
        elif any(_is_symbolic(types[name]) for name in (*used, *inside)):
            sizes = [var.name for var in trace.inputs if isinstance(var.type, ScalarType)]
            used = dict.fromkeys([*sizes, *used])
        live = {const.name: const.value for const in trace.constants}
        examples = [self.values[name] if name in self.values else live.get(name) for name in used]
        if any(example is None for example in examples):
            return None
        body = TraceCtx(
            name=trace.name,
            inputs=tuple(msgspec.structs.replace(types[name], source="") for name in used),
            bound_symbols=tuple(members),
            outputs=TupleArg(outputs),
            origins=trace.origins,
        )
        shown = self.visible if is_whole and self.visible is not None else range(len(outputs))
        visible = tuple(position for position in shown if isinstance(outputs[position], Ref))
        return Region(body, tuple(examples), trace.name, self.differentiated, is_whole, visible)

    def _compile(self, executor: FusionExecutor, region: Region) -> Fusion | None:
        try:
            fusion = executor.compile(region)
            if not isinstance(fusion, Fusion):
                raise TypeError(f"{executor.name} returned {type(fusion).__name__}, not a Fusion")
            return fusion
        except Exception as e:
            self.on_failure(executor, e)
            return None


def _executes(executor: Executor, line: BoundSymbol) -> bool:
    return isinstance(executor, OperatorExecutor) and executor.can_execute(line)


def _is_symbolic(var: Variable) -> bool:
    return isinstance(var.type, TensorType) and any(isinstance(size, str) for size in var.type.shape)


def _leaving(trace: TraceCtx, group: Sequence[int]) -> list[str]:
    """Names that the lines of ``group`` define and others use, in order."""
    members = set(group)
    used = returned_names(trace)
    for number, line in enumerate(trace.bound_symbols):
        if number not in members:
            used.update(line.uses())
    return [var.name for number in group for var in trace.bound_symbols[number].defines() if var.name in used]


def _with_fusions(
    trace: TraceCtx,
    executor: FusionExecutor,
    made: Sequence[tuple[tuple[BoundSymbol, ...], Region, Fusion]],
    order: Sequence[int],
) -> TraceCtx:
    """``order`` holds numbers of lines and, as ``-1 - n``, of regions; a whole trace has none."""
    taken = {const.name for const in trace.constants} | {var.name for var in trace.inputs}
    taken |= {var.name for line in trace.bound_symbols for var in line.defines()}
    fused: list[BoundSymbol] = []
    constants, records = list(trace.constants), list(trace.fusions)
    numbered = (f"{executor.name}_fusion{number}" for number in itertools.count())
    free = (name for name in numbered if name not in taken)
    for members, region, fusion in made:
        name = next(free)
        constants.append(Constant(name, OpaqueType("function"), fusion.run))
        records.append(FusionRecord(name, executor.name, fusion.source, dict(fusion.statistics)))
        fused.append(_fused_line(name, executor, members, region))
    if made[0][1].is_whole:
        lines = tuple(fused)
    else:
        lines = tuple(trace.bound_symbols[at] if at >= 0 else fused[-1 - at] for at in order)
    return trace.replace(bound_symbols=lines, constants=tuple(constants), fusions=tuple(records))


def _fused_line(name: str, executor: FusionExecutor, members: Sequence[BoundSymbol], region: Region) -> BoundSymbol:
    outputs = region.trace.outputs
    assert isinstance(outputs, TupleArg)
    defined = {var.name: var for line in members for var in line.defines()}
    tags = ["fused"]
    shared = families(region.trace)
    given = {var.name for var in region.trace.inputs}
    names = [item.name if isinstance(item, Ref) else "" for item in outputs.items]
    if any((given | set(names)) & shared.get(output, {output}) - {output} for output in names):
        tags.append("view")
    tags += [tag for tag in ("mutation", "random") if any(line.has_tag(tag) for line in members)]
    origins = {line.origin for line in members}
    return BoundSymbol(
        symbol=name,
        args=(ListArg(tuple(Ref(var.name) for var in region.trace.inputs)),),
        outputs=tuple(defined.pop(output, None) for output in names),
        unpack=True,
        executor=executor.name,
        origin=origins.pop() if len(origins) == 1 else None,
        subsymbols=tuple(members),
        tags=tuple(tags),
    )
