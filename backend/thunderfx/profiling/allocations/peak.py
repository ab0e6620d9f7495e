"""From the allocations of a step to its timeline and to what was alive at the peak. Needs no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from thunderfx.profiling.allocations.model import Group, Held, LineMemory, Peak, Phase, Place, Point
from thunderfx.profiling.allocations.roles import Roles, place_of

if TYPE_CHECKING:
    from thunderfx.profiling.allocations.alive import Alive
    from thunderfx.profiling.allocations.events import Span
    from thunderfx.profiling.allocations.recorder import Program, StepRecord

#: Bounds of what is stored.
MAX_POINTS = 1000
MAX_TENSORS = 200
MAX_GROUPS = 2000


@dataclasses.dataclass
class Block:
    """One allocation of the step; ``born`` and ``died`` count allocations and frees."""

    bytes: int
    born: int
    operator: str
    phase: str
    run: int | None  #: the line that allocated it, by ``StepRecord.runs``
    died: int | None = None
    names: list[tuple[int, str, str]] = dataclasses.field(default_factory=list)  #: program, name, type


class Timeline:
    """The allocations of ``record``, one after the other, with what was allocated after each."""

    def __init__(self, record: StepRecord) -> None:
        self._record = record
        self._live: dict[int, Block] = {}
        self._before = {item.pointer: item for item in record.alive}
        self.blocks: list[Block] = []
        self.freed_before: dict[int, int] = {}  #: address of what was alive before the step -> when it was freed
        self.times_ns: list[int] = []
        self.totals: list[int] = []
        self.reserved: list[int] = []
        self.ranges: list[int | None] = []  #: the line that each change fell in
        self._replay()

    @property
    def peak_index(self) -> int | None:
        """The change after which most was allocated; ``None`` where nothing was allocated beyond what was before."""
        if not self.totals or max(self.totals) <= self._record.before_bytes:
            return None
        return self.totals.index(max(self.totals))

    def _replay(self) -> None:
        """Changes and ends of lines in order of time: at its end a line's outputs give names to the blocks."""
        spans = self._record.recording.spans
        changes = self._record.recording.allocations
        ends = sorted((span for span in spans if span.name.startswith("line ")), key=lambda span: span.end_ns)
        phases = [span for span in spans if span.name.startswith("phase ")]
        done = 0
        total = self._record.before_bytes
        for index, change in enumerate(changes):
            while done < len(ends) and ends[done].end_ns <= change.time_ns:
                self._name(int(ends[done].name.removeprefix("line ")))
                done += 1
            run = int(change.range.removeprefix("line ")) if change.range.startswith("line ") else None
            if change.change_bytes > 0:
                block = Block(change.change_bytes, index, change.operator, phase_at(phases, change.time_ns), run)
                self._live[change.pointer] = block
                self.blocks.append(block)
            else:
                known = self._live.pop(change.pointer, None)
                if known is not None:
                    known.died = index
                elif change.pointer in self._before:
                    self.freed_before[change.pointer] = index
            total += change.change_bytes
            self.times_ns.append(change.time_ns)
            self.totals.append(total)
            self.reserved.append(change.reserved_bytes)
            self.ranges.append(run)
        for span in ends[done:]:
            self._name(int(span.name.removeprefix("line ")))

    def _name(self, serial: int) -> None:
        run = self._record.runs[serial]
        line = self._record.programs[run.program].trace.bound_symbols[run.line]
        for var, pointer in zip(line.defines(), run.pointers, strict=False):
            block = self._live.get(pointer) if pointer is not None else None
            if block is not None:
                block.names.append((run.program, var.name, str(var.type)))


def phase_at(phases: Sequence[Span], time_ns: int) -> str:
    return next((span.name.removeprefix("phase ") for span in phases if span.start_ns <= time_ns <= span.end_ns), "")


def explain(record: StepRecord, timeline: Timeline, roles: Roles) -> Peak | None:
    """What was alive at the peak; ``None`` where the step allocated nothing."""
    at = timeline.peak_index
    if at is None:
        return None
    held = [
        _before(item)
        for item in record.alive
        if timeline.freed_before.get(item.pointer, at + 1) > at and item.kind != "unnamed"
    ]
    alive = [block for block in timeline.blocks if block.born <= at and (block.died is None or block.died > at)]
    held += [_made(block, record, roles) for block in alive]
    measured = record.measured_bytes if record.measured_bytes is not None else timeline.totals[at]
    named = sum(item.bytes for item in held if item.kind != "unnamed")
    cause = next(block for block in reversed(timeline.blocks) if block.born <= at)
    unnamed = measured - sum(item.bytes for item in held)
    if unnamed > 0:
        held.append(Held("unnamed", unnamed))
    on_cuda = record.measured_bytes is not None
    return Peak(
        measured_bytes=measured,
        source="torch.cuda.max_memory_allocated"
        if on_cuda
        else "allocations that torch's profiler counted, and the tensors alive before the step",
        named_bytes=named,
        before_bytes=record.before_bytes,
        phase=cause.phase,
        place=_place(cause, record),
        groups=grouped(held),
        tensors=largest(held),
    )


def _before(item: Alive) -> Held:
    module = item.name.removeprefix("gradient of ").rpartition(".")[0]
    return Held(item.kind, item.bytes, item.name, item.type, Place(module=module))


def _made(block: Block, record: StepRecord, roles: Roles) -> Held:
    place = _place(block, record)
    if block.run is None:
        if not block.operator:
            return Held("unnamed", block.bytes)
        kind = "gradients" if "AccumulateGrad" in block.operator else "outside the subgraphs"
        return Held(kind, block.bytes, f"in {block.phase}" if block.phase else "", "", place)
    if not block.names:
        return Held("workspace", block.bytes, "", "", place)
    kind, name = roles.of(block.names)
    return Held(kind, block.bytes, name, block.names[0][2], place)


def _place(block: Block, record: StepRecord) -> Place:
    if block.run is None:
        return Place(symbol=block.operator.removeprefix("autograd::engine::evaluate_function: "))
    run = record.runs[block.run]
    return place_of(record.programs[run.program], run.line)


def grouped(held: Iterable[Held]) -> tuple[Group, ...]:
    """By kind and module, largest first; what exceeds the bound is summed by kind."""
    sums: dict[tuple[str, str], list[int]] = {}
    for item in held:
        entry = sums.setdefault((item.kind, item.place.module), [0, 0])
        entry[0] += item.bytes
        entry[1] += 1
    order = sorted(sums.items(), key=lambda entry: -entry[1][0])
    rest: dict[tuple[str, str], list[int]] = {}
    for (kind, _), (size, count) in order[MAX_GROUPS:]:
        entry = rest.setdefault((kind, "others"), [0, 0])
        entry[0] += size
        entry[1] += count
    return tuple(Group(*key, size, count) for key, (size, count) in (*order[:MAX_GROUPS], *rest.items()))


def largest(held: Iterable[Held]) -> tuple[Held, ...]:
    return tuple(sorted(held, key=lambda item: -item.bytes)[:MAX_TENSORS])


def phases_of(record: StepRecord, timeline: Timeline, *, reserves: bool) -> tuple[Phase, ...]:
    """Each phase with what was allocated during it."""
    spans = [span for span in record.recording.spans if span.name.startswith("phase ")]
    if not spans:
        return ()
    begin = spans[0].start_ns
    found = []
    last = record.before_bytes
    for span in spans:
        within = [i for i, time_ns in enumerate(timeline.times_ns) if span.start_ns <= time_ns <= span.end_ns]
        peak = max([last, *(timeline.totals[i] for i in within)])
        last = timeline.totals[within[-1]] if within else last
        reserved = max((timeline.reserved[i] for i in within), default=None) if reserves else None
        times = ((span.start_ns - begin) / 1e6, (span.end_ns - begin) / 1e6)
        found.append(Phase(span.name.removeprefix("phase "), *times, peak, last, reserved))
    return tuple(found)


def points_of(record: StepRecord, timeline: Timeline, *, reserves: bool) -> tuple[Point, ...]:
    """The timeline; where it is too long, the highest of each run of changes."""
    begin = min((span.start_ns for span in record.recording.spans), default=0)
    count = len(timeline.totals)
    size = max(1, -(-count // MAX_POINTS))
    points = [Point(0.0, record.before_bytes)]
    for start in range(0, count, size):
        top = max(range(start, min(start + size, count)), key=timeline.totals.__getitem__)
        reserved = timeline.reserved[top] if reserves else None
        points.append(Point((timeline.times_ns[top] - begin) / 1e6, timeline.totals[top], reserved))
    return tuple(points)


def lines_of(record: StepRecord, timeline: Timeline) -> tuple[LineMemory, ...]:
    """What each line allocated, the most that was allocated meanwhile, and what was after it; of its last run."""
    ends = {span.name: span for span in record.recording.spans if span.name.startswith("line ")}
    changes: dict[int, list[int]] = {}
    for index, within_run in enumerate(timeline.ranges):
        if within_run is not None:
            changes.setdefault(within_run, []).append(index)
    found: dict[tuple[int, int], LineMemory] = {}
    at, total = 0, record.before_bytes
    for serial, run in record.runs.items():
        span = ends.get(f"line {serial}")
        if span is None:
            continue
        while at < len(timeline.times_ns) and timeline.times_ns[at] <= span.end_ns:
            total = timeline.totals[at]
            at += 1
        within = changes.get(serial, [])
        change_bytes = [record.recording.allocations[i].change_bytes for i in within]
        program: Program = record.programs[run.program]
        found[run.program, run.line] = LineMemory(
            program.subgraph,
            program.direction,
            run.line,
            sum(size for size in change_bytes if size > 0),
            max([total, *(timeline.totals[i] for i in within)]),
            total,
        )
    return tuple(found.values())
