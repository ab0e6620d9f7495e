"""Times of lines, with a clock that the test turns."""

from __future__ import annotations

import pytest
import torch
from thunderfx.codegen import boxed
from thunderfx.passes.liveness import insert_dels
from thunderfx.profiling import line_timer
from thunderfx.profiling.line_costs import subgraph_costs
from thunderfx.profiling.line_timer import LineTimer
from thunderfx.trace import BoundSymbol, Constant, ListArg, OpaqueType, Ref, TensorType, TraceCtx, Variable

F32 = TensorType("float32", (2, 3))


def chain(*symbols: str) -> TraceCtx:
    lines, last = [], "x"
    for number, symbol in enumerate(symbols):
        out = Variable(f"t{number}", F32)
        lines.append(BoundSymbol(f"aten.{symbol}.default", (Ref(last),), outputs=(out,)))
        last = out.name
    return insert_dels(TraceCtx("forward", (Variable("x", F32),), tuple(lines), ListArg((Ref(last),))))


def test_a_marked_step_runs_the_same_lines_and_restores_the_program():
    trace = chain("sin", "exp")
    program = boxed(trace)
    timer = LineTimer("cpu")
    timed = timer.add(trace, program, "forward")
    original = program.replace(None)
    program.replace(original)
    x = torch.randn(2, 3)
    with timer.marked():
        inputs = [x]
        (found,) = program(inputs)
        program([x])
        assert inputs == []
    assert torch.equal(found, x.sin().exp())
    assert program.replace(original) is original
    assert timed.calls == [2]
    assert [len(samples) for samples in timed.lines_ms] == [1] * len(trace.bound_symbols)
    assert all(samples[0] >= 0 for samples in timed.lines_ms)


def test_time_goes_to_the_line_that_took_it(monkeypatch):
    trace = chain("sin", "exp", "cos")
    now = [0]

    def read() -> int:
        now[0] += 10
        return now[0]

    def slow_exp(x: torch.Tensor) -> torch.Tensor:
        now[0] += 5_000_000
        return torch.exp(x)

    monkeypatch.setattr(line_timer.time, "perf_counter_ns", read)
    slow = Constant("slow", OpaqueType("function"), slow_exp)
    lines = tuple(
        BoundSymbol("slow", line.args, outputs=line.outputs) if line.symbol == "aten.exp.default" else line
        for line in trace.bound_symbols
    )
    trace = trace.replace(bound_symbols=lines, constants=(slow,))
    program = boxed(trace)
    timer = LineTimer("cpu")
    timed = timer.add(trace, program, "forward")
    for _ in range(3):
        with timer.marked():
            program([torch.ones(2, 3)])
    costs = subgraph_costs({"forward": trace}, {"forward": timed}, mark_ms=timer.mark_ms, clock="test")["forward"]
    assert timer.mark_ms == pytest.approx(10e-6)
    times = {line.symbol: cost.time_ms for line, cost in zip(trace.bound_symbols, costs.lines, strict=True)}
    assert times["slow"] == pytest.approx(5.0)
    assert times["aten.sin.default"] == pytest.approx(0.0)
    assert costs.lines_ms == pytest.approx(5.0)
    assert costs.sum_ms == pytest.approx(5.0)
    assert costs.steps == 3


def test_a_bracketed_step_times_whole_programs():
    trace = chain("sin")
    program = boxed(trace)
    timer = LineTimer("cpu")
    timed = timer.add(trace, program, "backward")
    with timer.bracketed() as spans:
        program([torch.ones(2, 3)])
        program([torch.ones(2, 3)])
    assert [span.timed for span in spans] == [timed, timed]
    assert timed.whole_ms == [pytest.approx(sum(timer.clock.elapsed_ms(s.begin, s.end) for s in spans))]
    assert timed.lines_ms[0] == []


def test_a_program_that_is_one_call_has_one_line():
    def double(args: list[torch.Tensor]) -> list[torch.Tensor]:
        (x,) = args
        args.clear()
        return [x * 2]

    member = BoundSymbol("aten.mul.Tensor", (Ref("x"), 2), outputs=(Variable("a", F32),))
    line = BoundSymbol(
        "fused", (ListArg((Ref("x"),)),), outputs=(Variable("a", F32),), unpack=True, subsymbols=(member,),
        tags=("fused",),
    )  # fmt: skip
    constant = Constant("fused", OpaqueType("function"), double)
    trace = TraceCtx("forward", (Variable("x", F32),), (line,), ListArg((Ref("a"),)), constants=(constant,))
    trace = insert_dels(trace)
    program = boxed(trace)
    timer = LineTimer("cpu")
    timed = timer.add(trace, program, "forward")
    with timer.marked():
        assert program([torch.ones(2, 3)])[0].tolist() == torch.full((2, 3), 2.0).tolist()
    assert len(trace.bound_symbols) == 2
    assert timed.lines_ms[0][0] > 0
    assert timed.lines_ms[1] == [0.0]


def test_a_program_that_raises_leaves_the_timer_usable():
    trace = chain("sin")
    program = boxed(trace)
    timer = LineTimer("cpu")
    timed = timer.add(trace, program, "forward")
    with pytest.raises(ValueError), timer.marked():
        program([])
    with timer.marked():
        program([torch.ones(2, 3)])
    assert timed.calls == [1]


def test_steps_do_not_nest():
    timer = LineTimer("cpu")
    with timer.marked(), pytest.raises(RuntimeError, match="already being measured"), timer.bracketed():
        pass


def test_what_was_not_called_says_so():
    trace = chain("sin")
    timer = LineTimer("cpu")
    timed = timer.add(trace, boxed(trace), "forward")
    costs = subgraph_costs({"forward": trace}, {"forward": timed})["forward"]
    assert costs.lines_ms is None
    assert costs.note == "no measured step called it"
    assert costs.lines[0].allocated_bytes == 24
