"""From a hand-made record of allocations to the peak and its explanation."""

from __future__ import annotations

import pytest
from thunderfx.profiling.allocations.alive import Alive
from thunderfx.profiling.allocations.events import Allocation, Recording, Span
from thunderfx.profiling.allocations.model import Held
from thunderfx.profiling.allocations.peak import MAX_POINTS, Timeline, explain, lines_of, phases_of, points_of
from thunderfx.profiling.allocations.recorder import LineRun, Program, StepRecord
from thunderfx.profiling.allocations.roles import Roles
from thunderfx.trace import BoundSymbol, ListArg, Origin, Ref, TensorType, TraceCtx, Variable

F32 = TensorType("float32", (100,))


def variable(name: str, source: str = "") -> Variable:
    return Variable(name, F32, source)


def line(symbol: str, output: str, *uses: str) -> BoundSymbol:
    return BoundSymbol(f"aten.{symbol}.default", tuple(map(Ref, uses)), outputs=(variable(output),), origin=0)


ORIGIN = Origin("net.fc", "f", "/home/me/model.py", 12, "h = f(h)")
FORWARD = TraceCtx(
    "forward",
    (variable("w", "net.fc.weight"),),
    (line("sin", "a", "w"), line("cos", "out", "a")),
    ListArg((Ref("out"), Ref("a"))),
    (ORIGIN,),
)
BACKWARD = TraceCtx(
    "backward",
    (variable("a", "saved for backward"), variable("tangents_1", "gradient of an output")),
    (line("neg", "t", "tangents_1"), line("mul", "g", "t", "a")),
    ListArg((Ref("g"),)),
    (ORIGIN,),
)
PROGRAMS = [Program(0, "forward", FORWARD), Program(0, "backward", BACKWARD)]


def record(*changes: tuple[int, int, int, str, str], runs: dict[int, LineRun], spans: list[Span]) -> StepRecord:
    """``changes``: time, address, bytes, operator, range."""
    recording = Recording()
    total = 0
    for time_ns, pointer, size, operator, name in changes:
        total += size
        recording.allocations.append(Allocation(time_ns, pointer, size, total, 0, operator, name))
    recording.spans = sorted(spans, key=lambda span: span.start_ns)
    alive = [Alive(1, 400, "parameters", "net.fc.weight", "cpu f32[100]"), Alive(2, 50, "unnamed", "", "")]
    return StepRecord(PROGRAMS, runs, {}, alive, 450, None, recording)


@pytest.fixture
def step() -> StepRecord:
    """A forward that saves ``a``; a backward whose second line needs 700 bytes of scratch."""
    runs = {
        0: LineRun(0, 0, (10,)),
        1: LineRun(0, 1, (11,)),
        2: LineRun(1, 0, (12,)),
        3: LineRun(1, 1, (13,)),
    }
    spans = [
        Span("phase forward", 0, 100),
        Span("line 0", 10, 20),
        Span("line 1", 30, 40),
        Span("phase backward", 100, 300),
        Span("line 2", 110, 120),
        Span("line 3", 130, 160),
    ]
    return record(
        (11, 10, 400, "aten::sin", "line 0"),
        (31, 11, 400, "aten::cos", "line 1"),
        (105, 20, 4, "aten::ones_like", "phase backward"),
        (111, 12, 400, "aten::neg", "line 2"),
        (131, 13, 400, "aten::mul", "line 3"),
        (132, 14, 700, "aten::mul", "line 3"),
        (150, 14, -700, "aten::mul", "line 3"),
        (170, 12, -400, "", "phase backward"),
        (180, 10, -400, "", "phase backward"),
        runs=runs,
        spans=spans,
    )


def test_peak_is_explained_by_kind_module_and_line(step):
    peak = explain(step, Timeline(step), Roles(PROGRAMS))
    assert peak.measured_bytes == 450 + 400 + 400 + 4 + 400 + 400 + 700
    assert peak.phase == "backward"
    assert (peak.place.direction, peak.place.line, peak.place.symbol) == ("backward", 1, "aten.mul.default")
    assert (peak.place.module, peak.place.file, peak.place.number) == ("net.fc", "/home/me/model.py", 12)
    found = {(item.kind, item.name): item.bytes for item in peak.tensors}
    assert found == {
        ("parameters", "net.fc.weight"): 400,
        ("saved for backward", "a"): 400,
        ("outputs", "out"): 400,
        ("outside the subgraphs", "in backward"): 4,
        ("intermediates", "t"): 400,
        ("gradients", "gradient of net.fc.weight"): 400,
        ("workspace", ""): 700,
        ("unnamed", ""): 50,
    }
    assert peak.named_bytes == peak.measured_bytes - 50
    assert sum(group.bytes for group in peak.groups) == peak.measured_bytes
    assert {(group.kind, group.module) for group in peak.groups} >= {("workspace", "net.fc"), ("parameters", "net.fc")}


def test_what_was_alive_before_and_is_freed_counts_no_more(step):
    step.recording.allocations.insert(0, Allocation(5, 1, -400, 0, 0, "", "phase forward"))
    peak = explain(step, Timeline(step), Roles(PROGRAMS))
    assert peak.measured_bytes == 450 + 400 + 400 + 4 + 400 + 400 + 700 - 400
    assert not [item for item in peak.tensors if item.kind == "parameters"]


def test_phases_and_lines(step):
    timeline = Timeline(step)
    phases = phases_of(step, timeline, reserves=False)
    assert [(phase.name, phase.peak_bytes, phase.end_bytes) for phase in phases] == [
        ("forward", 1250, 1250),
        ("backward", 2754, 1254),
    ]
    lines = {(item.direction, item.line): item for item in lines_of(step, timeline)}
    mul = lines["backward", 1]
    assert (mul.allocated_bytes, mul.peak_bytes, mul.live_bytes) == (1100, 2754, 2054)
    assert lines["forward", 0].live_bytes == 850


def test_a_step_that_allocates_nothing_has_no_peak():
    empty = record(runs={}, spans=[Span("phase forward", 0, 10)])
    assert explain(empty, Timeline(empty), Roles(PROGRAMS)) is None


def test_a_long_timeline_keeps_its_top():
    changes = [(i, i + 100, 10, "op", "") for i in range(5000)]
    changes += [(6000, 9, 10_000, "op", ""), (6001, 9, -10_000, "", "")]
    long = record(*changes, runs={}, spans=[Span("phase forward", 0, 7000)])
    points = points_of(long, Timeline(long), reserves=False)
    assert len(points) <= MAX_POINTS + 1
    assert max(point.allocated_bytes for point in points) == 450 + 50_000 + 10_000


def test_pieces_of_no_operator_are_not_named():
    bare = record((5, 30, 60, "", "phase forward"), runs={}, spans=[Span("phase forward", 0, 10)])
    peak = explain(bare, Timeline(bare), Roles(PROGRAMS))
    assert peak.named_bytes == 400
    assert Held("unnamed", 60) in peak.tensors
