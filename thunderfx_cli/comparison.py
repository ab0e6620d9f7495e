"""What differs between two runs: subgraphs and their traces, environment, time and memory."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec
from thunderfx.trace.diff import TraceDiff, diff_traces
from thunderfx.trace.trace import TraceCtx
from thunderfx.trace.unfuse import unfused

from thunderfx_cli.errors import UsageError
from thunderfx_cli.store.schema import ContenderResult, Environment, Run, SubgraphIndex, Timing, TraceIndex

DIRECTIONS = ("forward", "backward")
#: Subgraphs that share less than this part of their operations are not each other's counterpart.
MIN_SIMILARITY = 0.3
#: Where these differ, times of two runs say nothing about the change between them.
TIMING_FIELDS = ("device", "device_name", "torch", "threads", "driver", "cuda")
PHASES = ("first_call", "forward", "backward", "step")
#: One reading of these moves with the rest of the machine, so a difference is not judged.
UNJUDGED = ("rss", "device_", "nvml")


class ReadableRun(Protocol):
    """The part of a stored run that is read here."""

    @property
    def run(self) -> Run: ...

    def load_trace(self, index: TraceIndex) -> TraceCtx: ...


class EnvironmentChange(msgspec.Struct, frozen=True):
    field: str
    before: str
    after: str


class Metric(msgspec.Struct, frozen=True):
    """One figure of both runs. ``verdict``: better, worse, same, within noise, or why there is none."""

    name: str
    unit: str  #: ``ms``, ``bytes``, ``count`` or the unit of the reading
    before: float | None
    after: float | None
    verdict: str = ""

    @property
    def change(self) -> float | None:
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def relative(self) -> float | None:
        """Change as a part of the value before; ``None`` where that is zero."""
        return None if self.change is None or not self.before else self.change / abs(self.before)


class DirectionDiff(msgspec.Struct, frozen=True, omit_defaults=True):
    """Traces of one direction; without ``diff``, ``note`` says why."""

    direction: str
    diff: TraceDiff | None = None
    note: str = ""


class SubgraphDiff(msgspec.Struct, frozen=True, omit_defaults=True):
    """``before`` or ``after`` is ``None`` for a subgraph that was added or removed."""

    before: int | None = None
    after: int | None = None
    code: str = ""
    lines: int = 0  #: lines of an added or removed subgraph
    directions: tuple[DirectionDiff, ...] = ()

    @property
    def is_empty(self) -> bool:
        both = self.before is not None and self.after is not None
        return both and all(d.diff is not None and d.diff.is_empty for d in self.directions)


class RunDiff(msgspec.Struct, frozen=True):
    before: str
    after: str
    stage: str
    subgraphs: tuple[SubgraphDiff, ...]
    environment: tuple[EnvironmentChange, ...]
    timings_comparable: bool
    metrics: tuple[Metric, ...]

    @property
    def traces_equal(self) -> bool:
        return all(subgraph.is_empty for subgraph in self.subgraphs)


def compare_runs(
    before: ReadableRun, after: ReadableRun, *, stage: str = "execution", subgraph: int | None = None, context: int = 1
) -> RunDiff:
    """Compare two runs; ``subgraph`` restricts the traces to the pairs that have this number on either side.

    Raises ``UsageError`` where neither run has the stage or the subgraph.
    """
    if (before.run.mode == "bench") != (after.run.mode == "bench"):
        raise UsageError("one is a bench and the other a run", hint="Compare two of the same kind; see thunderfx runs.")
    _check_stage(before.run, after.run, stage)
    changes = environment_changes(before.run.environment, after.run.environment)
    comparable = not any(change.field in TIMING_FIELDS for change in changes)
    return RunDiff(
        before.run.id,
        after.run.id,
        stage,
        tuple(_subgraph_diffs(before, after, stage, subgraph, context)),
        changes,
        comparable,
        tuple(metrics(before.run, after.run, comparable)),
    )


# -- traces


def _check_stage(before: Run, after: Run, stage: str) -> None:
    stages = list(dict.fromkeys(t.stage for run in (before, after) for s in run.subgraphs for t in s.traces))
    if stages and stage not in stages:
        raise UsageError(f"neither run has a stage {stage!r}", hint=f"stages: {', '.join(stages)}")


def _subgraph_diffs(
    before: ReadableRun, after: ReadableRun, stage: str, only: int | None, context: int
) -> list[SubgraphDiff]:
    a, b = before.run.subgraphs, after.run.subgraphs
    if only is not None and all(s.index != only for s in (*a, *b)):
        raise UsageError(f"neither run has a subgraph {only}", hint=f"subgraphs: {len(a)} before, {len(b)} after")
    early = stage == "execution" and _is_placed(a) != _is_placed(b)
    traces_a = [_Traces(before, s, stage, early) for s in a]
    traces_b = [_Traces(after, s, stage, early) for s in b]
    out = []
    for i, j in pair_by_similarity([t.operations for t in traces_a], [t.operations for t in traces_b]):
        numbers = (None if i is None else a[i].index, None if j is None else b[j].index)
        if only is not None and only not in numbers:
            continue
        known = b[j] if j is not None else a[i or 0]
        lines = known.forward_lines + known.backward_lines
        if i is None or j is None:
            out.append(SubgraphDiff(*numbers, known.code, lines))
        else:
            out.append(SubgraphDiff(*numbers, known.code, 0, _directions(traces_a[i], traces_b[j], stage, context)))
    return out


def _is_placed(subgraphs: Sequence[SubgraphIndex]) -> bool:
    """Whether other executors than torch were asked."""
    return any(t.stage == "placed" for s in subgraphs for t in s.traces)


class _Traces:
    """One subgraph's traces of a stage, each read once.

    ``early``: before lines were made to work in place, which would tell them from the same lines in a fusion.
    """

    def __init__(self, stored: ReadableRun, subgraph: SubgraphIndex, stage: str, early: bool) -> None:
        chosen = [t for t in subgraph.traces if t.stage == stage]
        if early:
            pairs = itertools.pairwise(subgraph.traces)
            chosen = [t for t, later in pairs if later.stage == "in_place" and t.direction == later.direction] or chosen
        self.by_direction = {t.direction: stored.load_trace(t) for t in chosen if t.direction in DIRECTIONS}
        self.operations: Counter[str] = Counter(
            f"{direction} {line.symbol}"
            for direction, trace in self.by_direction.items()
            for line in unfused(trace).bound_symbols
            if line.symbol != "python.del"
        )
        self.why_missing = {f.where: f.reason for f in subgraph.fallbacks}


def _directions(a: _Traces, b: _Traces, stage: str, context: int) -> tuple[DirectionDiff, ...]:
    out = []
    for direction in DIRECTIONS:
        x, y = a.by_direction.get(direction), b.by_direction.get(direction)
        if x is not None and y is not None:
            out.append(DirectionDiff(direction, diff_traces(x, y, context=context)))
        elif x is not None or y is not None:
            missing, where = (a, "before") if x is None else (b, "after")
            reason = missing.why_missing.get(direction) or missing.why_missing.get("graph", "")
            note = f"no {stage} trace {where}" + (f": {reason}" if reason else "")
            out.append(DirectionDiff(direction, None, note))
    return tuple(out)


def similarity(a: Counter[str], b: Counter[str]) -> float:
    """Shared part of two multisets, 0 to 1; two empty ones are alike."""
    total = (a | b).total()
    return (a & b).total() / total if total else 1.0


def pair_by_similarity(a: Sequence[Counter[str]], b: Sequence[Counter[str]]) -> list[tuple[int | None, int | None]]:
    """Most similar first, near positions first among equals; what is left is paired by order where as many are left."""
    scored = [(-similarity(x, y), abs(i - j), i, j) for i, x in enumerate(a) for j, y in enumerate(b)]
    partner: dict[int, int] = {}
    taken: set[int] = set()
    for score, _, i, j in sorted(scored):
        if -score >= MIN_SIMILARITY and i not in partner and j not in taken:
            partner[i] = j
            taken.add(j)
    left = [i for i in range(len(a)) if i not in partner]
    new = [j for j in range(len(b)) if j not in taken]
    if len(left) == len(new):
        partner.update(zip(left, new, strict=True))
        left, new = [], []
    pairs: list[tuple[int | None, int | None]] = [(i, j) for i, j in sorted(partner.items(), key=lambda p: p[1])]
    return pairs + [(i, None) for i in left] + [(None, j) for j in new]


# -- figures


def environment_changes(a: Environment, b: Environment) -> tuple[EnvironmentChange, ...]:
    """Fields that differ, those that bear on time first; the commit is left out: changing it is the point."""
    fields = sorted(Environment.__struct_fields__, key=lambda f: (f not in TIMING_FIELDS, f))
    pairs = [(f, str(getattr(a, f)), str(getattr(b, f))) for f in fields if not f.startswith("git_")]
    return tuple(EnvironmentChange(f, x, y) for f, x, y in pairs if x != y)


def metrics(a: Run, b: Run, comparable: bool) -> list[Metric]:
    """Figures that either run has: time, memory, structure."""
    out = [_timing(phase, a, b, comparable) for phase in PHASES if phase in a.timings or phase in b.timings]
    out += list(_benched(a, b, comparable))
    names = list(dict.fromkeys([*a.memory.readings, *b.memory.readings]))
    out += [_memory(name, a, b) for name in names if "total" not in name]
    if "saved_for_backward_bytes" not in names:
        out.append(_exact("saved_for_backward_bytes", "bytes", _saved_bytes(a), _saved_bytes(b)))
    if a.mode == b.mode == "bench":
        return [m for m in out if m.before is not None or m.after is not None]
    counts: list[tuple[str, Callable[[Run], int]]] = [
        ("forward lines", lambda run: sum(s.forward_lines for s in run.subgraphs)),
        ("backward lines", lambda run: sum(s.backward_lines for s in run.subgraphs)),
        ("fusions", lambda run: sum(s.fusions for s in run.subgraphs)),
    ]
    out += [_counted(name, float(count(a)), float(count(b))) for name, count in counts]
    out.append(_exact("subgraphs", "count", len(a.subgraphs), len(b.subgraphs)))
    out.append(_exact("graph breaks", "count", len(a.graph_breaks), len(b.graph_breaks)))
    fallbacks = [sum(len(s.fallbacks) for s in run.subgraphs) for run in (a, b)]
    out.append(_exact("fallbacks", "count", *fallbacks))
    return [m for m in out if m.before is not None or m.after is not None]


def _benched(a: Run, b: Run, comparable: bool) -> Iterator[Metric]:
    """Times and errors of each compiler that either bench has."""
    before, after = ({item.name: item for item in run.contenders} for run in (a, b))
    nobody = ContenderResult("")
    for name in dict.fromkeys([*before, *after]):
        x, y = before.get(name, nobody), after.get(name, nobody)
        for phase in PHASES:
            if phase in x.timings or phase in y.timings:
                yield _compared(f"{name}: {phase}", x.timings.get(phase), y.timings.get(phase), comparable)
        if x.graphs is not None or y.graphs is not None:
            yield _exact(f"{name}: graphs", "count", x.graphs, y.graphs)
        for key in [key for key in {**x.memory, **y.memory} if key.endswith("peak_bytes")]:
            values = [item.memory[key].value if key in item.memory else None for item in (x, y)]
            yield _exact(f"{name}: {key}", "bytes", *values)


def _timing(phase: str, a: Run, b: Run, comparable: bool) -> Metric:
    return _compared(phase, a.timings.get(phase), b.timings.get(phase), comparable)


def _compared(phase: str, a: Timing | None, b: Timing | None, comparable: bool) -> Metric:
    samples = [timing.samples_ms if timing is not None else () for timing in (a, b)]
    before, after = (statistics.median(s) if s else None for s in samples)
    if before is None or after is None:
        verdict = ""
    else:
        verdict = timing_verdict(*samples) if comparable else "not comparable"
    return Metric(phase, "ms", before, after, verdict)


def timing_verdict(before: Sequence[float], after: Sequence[float]) -> str:
    """Whether the samples tell the two runs apart."""
    from thunderfx.profiling.statistics import significant

    try:
        return significant(before, after)
    except ValueError:  # a stored run may hold anything
        return "samples cannot be used"


def _memory(name: str, a: Run, b: Run) -> Metric:
    before, after = (run.memory.readings[name].value if name in run.memory.readings else None for run in (a, b))
    unit = name.rsplit("_", 1)[-1]
    if name.startswith(UNJUDGED) or unit != "bytes":
        return Metric(name, unit, before, after)
    return _exact(name, "bytes", before, after)


def _saved_bytes(run: Run) -> int | None:
    known = [s.saved_for_backward_bytes for s in run.subgraphs if s.saved_for_backward_bytes is not None]
    return sum(known) if known else None


def _counted(name: str, before: float, after: float) -> Metric:
    return Metric(name, "count", before, after, "same" if before == after else "")


def _exact(name: str, unit: str, before: float | None, after: float | None) -> Metric:
    """A figure that does not vary between equal runs, where less is better."""
    if before is None or after is None:
        return Metric(name, unit, before, after)
    verdict = "same" if before == after else "better" if after < before else "worse"
    return Metric(name, unit, float(before), float(after), verdict)
