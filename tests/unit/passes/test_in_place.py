"""Where a line may overwrite its operand, and where somebody would notice."""

from __future__ import annotations

import pytest
from thunderfx.passes.in_place import work_in_place
from thunderfx.passes.views import sum_without_view
from thunderfx.trace import Arg, BoundSymbol, ListArg, Ref, TensorType, TraceCtx, Variable, check

TYPE = TensorType("float32", (4, 4))


def line(out: str, op: str, *args: Arg, type: TensorType = TYPE, tags: tuple[str, ...] = ()) -> BoundSymbol:
    operands = tuple(Ref(arg) if isinstance(arg, str) else arg for arg in args)
    outputs = tuple(Variable(name, type) for name in out.split())
    return BoundSymbol(f"aten.{op}", operands, outputs=outputs, tags=tags, unpack=len(outputs) > 1)


def trace(*lines: BoundSymbol, returns: str) -> TraceCtx:
    inputs = tuple(Variable(name, TYPE) for name in "xyz")
    result = TraceCtx("f", inputs, lines, ListArg(tuple(map(Ref, returns.split()))))
    check(result)
    return result


def body(result: TraceCtx) -> list[str]:
    check(result)
    return [text.strip() for text in result.python().splitlines()[6:-1]]


PRODUCT = line("a", "mm.default", "x", "y")


def test_a_dead_operand_is_overwritten():
    after = work_in_place(trace(PRODUCT, line("b", "relu.default", "a"), returns="b"))
    assert body(after)[1:] == ["b = aten.relu_.default(a)"]
    assert after.bound_symbols[1].tags == ("mutation",)


def test_either_operand_of_a_sum_may_be_overwritten():
    after = work_in_place(trace(PRODUCT, line("b", "add.Tensor", "x", "a"), returns="b"))
    assert body(after)[1:] == ["b = aten.add_.Tensor(a, x)"]


def test_a_backward_formula_writes_over_the_gradient():
    after = work_in_place(trace(PRODUCT, line("b", "threshold_backward.default", "a", "x", 0), returns="b"))
    assert body(after)[1:] == ["b = aten.threshold_backward.grad_input(a, x, 0, grad_input=a)"]


VIEW = line("v", "t.default", "a", tags=("view",))


@pytest.mark.parametrize(
    ("lines", "returns"),
    [
        ([line("b", "relu.default", "x")], "b"),
        ([PRODUCT, line("b", "relu.default", "a")], "a b"),
        ([PRODUCT, line("b", "relu.default", "a"), line("c", "mul.Tensor", "a", "b")], "c a b"),
        ([PRODUCT, VIEW, line("b", "relu.default", "a")], "b v"),
        ([PRODUCT, VIEW, line("b", "relu.default", "v"), line("c", "mm.default", "a", "b")], "c"),
        ([PRODUCT, VIEW, line("b", "mul.Tensor", "a", "v")], "b"),
        ([line("a", "native_dropout.default", "x", 0.0, True), line("b", "relu.default", "a")], "b"),
        ([PRODUCT, line("b", "relu.default", "a", type=TensorType("float64", (4, 4)))], "b"),
        ([PRODUCT, line("b", "add.Tensor", "a", "x", type=TensorType("float32", (2, 4, 4)))], "b"),
        ([PRODUCT, line("b", "relu.default", "a", type=TensorType("float32", (4, 4), stride=(1, 4)))], "b"),
        ([PRODUCT, line("b", "sub.Tensor", "x", "a")], "b"),
    ],
    ids=[
        "an input",
        "returned",
        "returned though used later too",
        "a view of it is returned",
        "its base is read later",
        "a view of it is the other operand",
        "may be the input itself",
        "another dtype",
        "another shape",
        "other strides",
        "operands that cannot be swapped",
    ],
)
def test_an_operand_that_somebody_may_read_stays(lines, returns):
    before = trace(*lines, returns=returns)
    assert work_in_place(before) is before


def test_an_input_is_changed_where_its_new_value_is_computed():
    lines = [
        line("a", "add.Tensor", "x", 1),
        line("b", "mm.default", "a", "y"),
        line("c", "copy_.default", "x", "a", tags=("mutation",)),
    ]
    after = work_in_place(trace(*lines, returns="b"))
    assert body(after) == ["a = aten.add_.Tensor(x, 1)", "b = aten.mm.default(a, y)"]


def test_an_input_that_is_still_read_is_changed_at_the_end():
    lines = [
        line("a", "add.Tensor", "x", 1),
        line("b", "mm.default", "x", "y"),
        line("c", "copy_.default", "x", "a", tags=("mutation",)),
    ]
    before = trace(*lines, returns="b")
    assert work_in_place(before) is before
    returned = trace(lines[0], lines[2], returns="a")
    assert work_in_place(returned) is returned


def test_batch_norm_updates_its_statistics_itself():
    norm = line("a b c d e", "_native_batch_norm_legit_functional.default", "x", None, None, "y", "z", True, 0.1, 1e-5)
    copies = [line(f"k{to}", "copy_.default", to, new, tags=("mutation",)) for to, new in (("y", "d"), ("z", "e"))]
    after = work_in_place(trace(norm, *copies, returns="a"))
    assert body(after) == ["(a, b, c) = aten._native_batch_norm_legit.default(x, None, None, y, z, True, 0.1, 1e-05)"]
    saved = trace(norm, *copies, returns="a d")
    assert work_in_place(saved) is saved


def test_a_sum_drops_the_dimensions_that_a_view_would():
    kept, flat = TensorType("float32", (1, 4)), TensorType("float32", (4,))
    total = BoundSymbol("aten.sum.dim_IntList", (Ref("x"), ListArg((0,)), True), outputs=(Variable("a", kept),))
    view = line("b", "view.default", "a", ListArg((4,)), type=flat, tags=("view",))
    assert body(sum_without_view(trace(total, view, returns="b"))) == ["b = aten.sum.dim_IntList(x, [0])"]
    for before in (
        trace(total, view, returns="a b"),
        trace(total, line("b", "view.default", "a", ListArg((2, 2)), type=TensorType("float32", (2, 2))), returns="b"),
    ):
        assert sum_without_view(before) is before
