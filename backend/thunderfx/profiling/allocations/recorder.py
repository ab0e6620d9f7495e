"""One step, run for its allocations: every program of ours is watched line by line while it lasts."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from thunderfx.codegen import compiled
from thunderfx.profiling.allocations.alive import Alive, storage_of
from thunderfx.profiling.allocations.events import Recording, range_named, recorded
from thunderfx.trace import TraceCtx
from thunderfx.trace.values import ListArg, Ref, TupleArg

Phase = tuple[str, Callable[[], object]]


class Program(NamedTuple):
    """A subgraph's execution trace of one direction."""

    subgraph: int
    direction: str
    trace: TraceCtx


class LineRun(NamedTuple):
    """One execution of one line, with the addresses of the storages that hold its outputs, in their order."""

    program: int  #: index into ``StepRecord.programs``
    line: int
    pointers: tuple[int | None, ...]


class StepRecord(NamedTuple):
    """``runs[i]`` is what the range ``"line i"`` of ``recording`` ran. ``saved`` holds, for each subgraph, the values
    that its forward returned for the backward: name, address and bytes of the storage."""

    programs: list[Program]
    runs: dict[int, LineRun]
    saved: dict[int, list[tuple[str, int, int]]]
    alive: list[Alive]
    before_bytes: int
    measured_bytes: int | None  #: peak by CUDA's allocator; ``None`` on the CPU
    recording: Recording


def record_step(
    infos: Sequence[Any], phases: Sequence[Phase], alive: Callable[[], list[Alive]], device: torch.device
) -> StepRecord:
    """Run ``phases`` one after the other; ``infos`` are the subgraphs whose programs they run.

    ``alive`` lists what is alive before. What a phase raises is raised.
    """
    record = StepRecord([], {}, {}, [], 0, None, Recording())
    on_cuda = device.type == "cuda"
    with contextlib.ExitStack() as watching:
        for number, info in enumerate(infos):
            _watch(number, info, record, watching)
        gc.collect()  # garbage of the steps before would be freed in this one, unseen
        before = alive()
        if on_cuda:
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
        total = torch.cuda.memory_allocated(device) if on_cuda else sum(item.bytes for item in before)
        with recorded(device) as recording:
            for name, run in phases:
                with range_named(f"phase {name}"):
                    run()
        peak = torch.cuda.max_memory_allocated(device) if on_cuda else None
    return record._replace(alive=before, before_bytes=total, measured_bytes=peak, recording=recording)


def _watch(number: int, info: Any, record: StepRecord, watching: contextlib.ExitStack) -> None:
    """Put watched programs in the place of a subgraph's until ``watching`` ends."""
    for direction, program in info.programs.items():
        trace = info.trace(direction)
        if trace is None or not hasattr(program, "replace"):
            continue
        watch = _LineRanges(len(record.programs), record.runs)
        record.programs.append(Program(number, direction, trace))
        watched = compiled(trace, watch)
        if direction == "forward":
            names = saved_names(trace, info.trace("backward"))
            watched = _saving(watched, names, record.saved.setdefault(number, []))
        watching.callback(program.replace, program.replace(watched))


class _LineRanges:
    """A range for each line."""

    def __init__(self, program: int, runs: dict[int, LineRun]) -> None:
        self._program = program
        self._runs = runs
        self._open: Any = None

    def before(self, line: int) -> None:
        serial = len(self._runs)
        self._runs[serial] = LineRun(self._program, line, ())
        self._open = range_named(f"line {serial}")
        self._open.__enter__()
        self._serial = serial

    def after(self, line: int, made: tuple[Any, ...]) -> None:
        self._open.__exit__(None, None, None)
        self._runs[self._serial] = LineRun(self._program, line, tuple(_pointers(made)))


def _pointers(made: tuple[Any, ...]) -> Iterator[int | None]:
    for value in made:
        if isinstance(value, (list, tuple)):
            value = value[0] if value else None
        place = storage_of(value)
        yield None if place is None else place[0]


def _saving(
    program: Callable[[list[Any]], Any], names: Sequence[str], into: list[tuple[str, int, int]]
) -> Callable[[list[Any]], Any]:
    """``program``, noting the last of its outputs, which are called ``names``."""

    def run(args: list[Any]) -> Any:
        outputs = program(args)
        into.clear()
        for name, value in zip(names, outputs[len(outputs) - len(names) :], strict=False):
            place = storage_of(value)
            if place is not None:
                into.append((name, *place))
        return outputs

    return run


def saved_names(forward: TraceCtx, backward: TraceCtx | None) -> list[str]:
    """Values that the forward returns for the backward: its last outputs, as many as the backward takes besides the
    gradients of the forward's outputs."""
    if backward is None:
        return []
    count = sum(not is_gradient(var.name, var.source) for var in backward.inputs)
    names = output_names(forward)
    return [name for name in names[len(names) - count :] if name]


def is_gradient(name: str, source: str) -> bool:
    return source == "gradient of an output" or name.startswith("tangents_")


def output_names(trace: TraceCtx) -> list[str]:
    """Names in the order of the outputs, ``""`` for constants."""
    items = trace.outputs.items if isinstance(trace.outputs, (ListArg, TupleArg)) else (trace.outputs,)
    return [item.name if isinstance(item, Ref) else "" for item in items]
