"""Regions, placement and fusion on small traces made by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thunderfx.executors import Fusion, FusionExecutor, OperatorExecutor, resolve_executors
from thunderfx.executors.torch_executor import TorchExecutor
from thunderfx.passes.fuse import Fusing
from thunderfx.passes.place import place
from thunderfx.passes.regions import dependencies, in_order, regions
from thunderfx.trace import (
    BoundSymbol,
    Ref,
    TensorType,
    TraceCtx,
    TupleArg,
    Variable,
    check,
    from_json,
    to_json,
    unfused,
)

F32 = TensorType("float32", (3,))
POINTWISE = ("aten.sin.default", "aten.add.Tensor", "aten.mul.Tensor", "aten.t.default")


def line(out, symbol, *args, tags=()):
    outputs = (Variable(out, F32),) if out else ()
    return BoundSymbol(symbol, tuple(Ref(a) if isinstance(a, str) else a for a in args), outputs=outputs, tags=tags)


def trace_of(*lines, inputs=("x",), returns=("z",)):
    variables = tuple(Variable(name, F32) for name in inputs)
    return TraceCtx("forward", variables, tuple(lines), TupleArg(tuple(map(Ref, returns))))


class Pointwise(FusionExecutor):
    """Runs members one by one, through the trace of the region."""

    name = "pointwise"

    def __init__(self, fails=False):
        self.regions = []
        self.fails = fails

    def can_fuse(self, line):
        return line.symbol in POINTWISE or f"{line.symbol} is no pointwise operator"

    def compile(self, region):
        if self.fails:
            raise RuntimeError("no compiler")
        self.regions.append(region)
        program = region.trace.python_callable()
        return Fusion(lambda args: program(*args), "source text", {"kernels": 1})


class Negative(OperatorExecutor):
    name = "negative"

    def can_execute(self, line):
        return line.symbol == "aten.neg.default"

    def implementation(self, line):
        return lambda x: -x


def fused(trace, *executors, failures=None):
    executors = (*executors, TorchExecutor())
    names = {var.name for var in trace.inputs} | {v.name for item in trace.bound_symbols for v in item.defines()}
    fusing = Fusing(
        executors,
        {name: torch.zeros(3) for name in names},
        differentiated=True,
        visible=None,
        on_failure=lambda executor, error: (failures if failures is not None else []).append(str(error)),
    )
    result = fusing(place(trace, executors))
    check(result)
    return result


def symbols(trace):
    return [item.symbol for item in trace.bound_symbols]


CHAIN = trace_of(
    line("a", "aten.sin.default", "x"),
    line("b", "aten.add.Tensor", "a", "x"),
    line("c", "aten.neg.default", "b"),
    line("d", "aten.mul.Tensor", "c", "a"),
    line("z", "aten.sin.default", "d"),
)


def test_a_region_ends_where_another_line_stands_between():
    executor = Pointwise()
    result = fused(CHAIN, executor)
    assert symbols(result) == ["pointwise_fusion0", "aten.neg.default", "pointwise_fusion1"]
    first, middle, last = result.bound_symbols
    assert [member.symbol for member in first.subsymbols] == ["aten.sin.default", "aten.add.Tensor"]
    assert [out.name for out in first.outputs] == ["a", "b"]
    assert middle.why == "pointwise: aten.neg.default is no pointwise operator"
    assert (first.executor, middle.executor, last.tags) == ("pointwise", "torch", ("fused",))
    assert [record.source for record in result.fusions] == ["source text"] * 2
    x = torch.randn(3)
    (want,) = CHAIN.python_callable()(x)
    torch.testing.assert_close(result.python_callable()(x)[0], want)


def test_a_stored_fusion_runs_its_members():
    result = from_json(to_json(fused(CHAIN, Pointwise())))
    x = torch.randn(3)
    torch.testing.assert_close(result.python_callable()(x), CHAIN.python_callable()(x))
    assert symbols(unfused(result)) == symbols(CHAIN)
    assert [item.executor for item in unfused(result).bound_symbols][:3] == ["pointwise", "pointwise", "torch"]


def test_one_line_and_views_alone_are_not_worth_a_call():
    lone = trace_of(
        line("t", "aten.t.default", "x", tags=("view",)),
        line("a", "aten.sin.default", "t"),
        line("z", "aten.neg.default", "a"),
    )
    result = fused(lone, Pointwise())
    assert symbols(result) == symbols(lone)
    assert result.bound_symbols[1].why == "pointwise: too little to fuse: its neighbours run outside"
    assert {item.executor for item in result.bound_symbols} == {"torch"}


def test_lines_with_effects_stay_outside_and_in_order():
    trace = trace_of(
        line("a", "aten.sin.default", "x"),
        line("b", "aten.mul.Tensor", "a", "x"),
        line(None, "aten.add_.Tensor", "x", "b", tags=("mutation",)),
        line("c", "aten.sin.default", "x"),
        line("z", "aten.mul.Tensor", "c", "b"),
    )
    result = fused(trace, Pointwise())
    assert symbols(result) == ["pointwise_fusion0", "aten.add_.Tensor", "pointwise_fusion1"]
    assert result.bound_symbols[1].why == "pointwise: it changes memory in place"


def test_an_operator_executors_own_implementation_is_a_line_of_its_own():
    result = place(CHAIN, (Negative(), Pointwise(), TorchExecutor()))
    claimed = result.bound_symbols[2]
    assert (claimed.symbol, claimed.executor) == ("negative_neg", "negative")
    assert claimed.subsymbols[0].symbol == "aten.neg.default"
    assert claimed.why == "pointwise: negative comes before it"
    x = torch.randn(3)
    torch.testing.assert_close(result.python_callable()(x), CHAIN.python_callable()(x))


def test_a_region_that_does_not_compile_runs_line_by_line():
    failures = []
    result = fused(CHAIN, Pointwise(fails=True), failures=failures)
    assert failures == ["no compiler"] * 2
    assert symbols(result) == symbols(CHAIN)
    assert result.bound_symbols[0].why == "pointwise: its region did not compile"


@pytest.mark.parametrize(
    ("wanted", "error", "message"),
    [
        (["nope"], ValueError, "unknown executor 'nope'; known: torch, sdpa, triton, inductor"),
        ([3], TypeError, "an executor is a name or an Executor, not int"),
        ("torch", TypeError, "executors takes a list"),
        ([Pointwise(), Pointwise()], ValueError, "executor 'pointwise' is named twice"),
    ],
)
def test_names_that_are_no_executors(wanted, error, message):
    with pytest.raises(error, match=message):
        resolve_executors(wanted)


@st.composite
def programs(draw):
    """Programs of lines that read earlier ones, some of which cannot be fused, some of which write in place."""
    names, lines = ["x"], []
    for number in range(draw(st.integers(1, 14))):
        a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        kind = draw(st.sampled_from(["fused", "fused", "other", "view", "in place"]))
        name = f"v{number}"
        if kind == "fused":
            lines.append(line(name, "aten.add.Tensor", a, b))
        elif kind == "other":
            lines.append(line(name, "aten.neg.default", a))
        elif kind == "view":
            lines.append(line(name, "aten.t.default", a, tags=("view",)))
        else:
            lines.append(line(name, "aten.mul_.Tensor", a, b, tags=("mutation", "view")))
        names.append(name)
    kept = draw(st.lists(st.sampled_from(names[1:]), min_size=1, unique=True))
    return trace_of(*lines, returns=kept)


@settings(deadline=None)
@given(programs())
def test_fused_programs_compute_the_same(trace):
    x = torch.arange(3.0) / 8
    want = trace.python_callable()(x.clone())
    result = fused(trace, Pointwise())
    for expected, found in zip(want, result.python_callable()(x.clone()), strict=True):
        torch.testing.assert_close(found, expected)


@settings(deadline=None)
@given(programs())
def test_regions_leave_no_cycle_and_nothing_runs_before_what_it_needs(trace):
    fusible = [not item.has_tag("mutation") and item.symbol != "aten.neg.default" for item in trace.bound_symbols]
    groups = regions(trace, fusible)
    assert sorted(number for group in groups for number in group) == [n for n, f in enumerate(fusible) if f]
    needs = dependencies(trace)
    position = {}
    for at, unit in enumerate(in_order(trace, groups)):
        for number in groups[-1 - unit] if unit < 0 else [unit]:
            position[number] = at
    assert len(position) == len(trace.bound_symbols)
    for number, before in enumerate(needs):
        assert all(position[other] <= position[number] for other in before)


def test_connected_lines_with_nothing_between_share_a_region():
    trace = trace_of(
        *[line(f"v{n}", "aten.sin.default", f"v{n - 1}" if n else "x") for n in range(50)], returns=["v49"]
    )
    assert regions(trace, [True] * 50) == [list(range(50))]
