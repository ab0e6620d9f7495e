"""Each pass on traces small enough to read."""

from __future__ import annotations

from thunderfx.passes.cse import cse
from thunderfx.passes.dce import dce
from thunderfx.passes.liveness import insert_dels
from thunderfx.passes.views import remove_noop_views
from thunderfx.trace import Arg, BoundSymbol, ListArg, Ref, TensorType, TraceCtx, Variable, check

TYPE = TensorType("float32", (4,))


def line(out: str, op: str, *args: Arg, tags: tuple[str, ...] = ()) -> BoundSymbol:
    operands = tuple(Ref(arg) if isinstance(arg, str) else arg for arg in args)
    outputs = (Variable(out, TYPE),) if out else ()
    return BoundSymbol(f"aten.{op}.default", operands, outputs=outputs, tags=tags)


def trace(*lines: BoundSymbol, returns: str) -> TraceCtx:
    inputs = (Variable("x", TYPE), Variable("y", TYPE))
    result = TraceCtx("f", inputs, lines, ListArg(tuple(map(Ref, returns.split()))))
    check(result)
    return result


def body(result: TraceCtx) -> list[str]:
    check(result)
    return [text.strip() for text in result.python().splitlines()[6:]]


def test_dce_removes_what_nobody_uses_and_what_only_that_used():
    before = trace(line("a", "sin", "x"), line("b", "cos", "a"), line("c", "exp", "x"), returns="c")
    assert body(dce(before)) == ["c = aten.exp.default(x)", "return [c]"]


def test_dce_keeps_effects_and_random_draws():
    before = trace(
        line("a", "copy_", "x", "y", tags=("mutation",)),
        line("b", "bernoulli", "y", tags=("random",)),
        line("", "_assert_async", "y", tags=("effect",)),
        returns="x",
    )
    assert dce(before) is before


def test_cse_reuses_an_equal_line():
    before = trace(line("a", "sin", "x"), line("b", "sin", "x"), line("c", "mul", "a", "b"), returns="c")
    assert body(cse(before)) == ["a = aten.sin.default(x)", "c = aten.mul.default(a, a)", "return [c]"]


def test_cse_tells_constants_apart():
    constants: tuple[Arg, ...] = (1, 1.0, True, 0.0, -0.0)
    lines = [line(f"a{i}", "add", "x", value) for i, value in enumerate(constants)]
    before = trace(*lines, line("c", "cat", *(f"a{i}" for i in range(5))), returns="c")
    assert cse(before) is before


def test_cse_never_merges_random_lines():
    rand = [line(name, "rand_like", "x", tags=("random",)) for name in ("a", "b")]
    before = trace(*rand, line("c", "mul", "a", "b"), returns="c")
    assert cse(before) is before


def test_cse_does_not_look_across_a_mutation():
    before = trace(
        line("a", "sin", "x"),
        line("m", "mul_", "x", "y", tags=("mutation",)),
        line("b", "sin", "x"),
        line("c", "mul", "a", "b"),
        returns="c",
    )
    assert cse(before) is before


def test_cse_keeps_two_results_that_both_leave_the_trace():
    before = trace(line("a", "clone", "x"), line("b", "clone", "x"), returns="a b")
    assert cse(before) is before
    views = trace(
        line("a", "clone", "x"),
        line("b", "clone", "x"),
        line("v", "view", "a", tags=("view",)),
        line("w", "view", "b", tags=("view",)),
        returns="v w",
    )
    assert "b = aten.clone.default(x)" in body(cse(views))


def test_cse_keeps_a_value_that_is_changed_later():
    before = trace(
        line("a", "clone", "x"),
        line("b", "clone", "x"),
        line("m", "mul_", "b", "y", tags=("mutation",)),
        line("c", "mul", "a", "b"),
        returns="c",
    )
    assert cse(before) is before


def test_views_that_do_nothing_go():
    before = trace(
        line("a", "sin", "x"),
        line("d", "detach", "a", tags=("view",)),
        line("t", "t", "d", tags=("view",)),
        line("u", "t", "t", tags=("view",)),
        line("c", "mul", "u", "t"),
        returns="c",
    )
    after = dce(remove_noop_views(before))
    assert body(after) == [
        "a = aten.sin.default(x)",
        "t = aten.t.default(a)",
        "c = aten.mul.default(a, t)",
        "return [c]",
    ]


def test_a_returned_view_of_an_input_or_of_another_output_stays():
    for returns in ("d", "a e"):
        before = trace(
            line("d", "detach", "x", tags=("view",)),
            line("a", "sin", "x"),
            line("e", "detach", "a", tags=("view",)),
            returns=returns,
        )
        assert {"d", "e"} & set(returns.split()) <= {
            var.name for ln in remove_noop_views(before).bound_symbols for var in ln.defines()
        }


def test_two_returned_views_of_one_value_stay_two():
    before = trace(
        line("a", "sin", "x"),
        line("d", "detach", "a", tags=("view",)),
        line("e", "detach", "a", tags=("view",)),
        returns="d e",
    )
    assert body(remove_noop_views(before))[-1] in ("return [a, e]", "return [d, e]")


def test_dels_follow_the_last_use():
    before = trace(line("a", "sin", "x"), line("b", "mul", "a", "y"), line("c", "exp", "b"), returns="c")
    assert body(insert_dels(before)) == [
        "a = aten.sin.default(x)",
        "del x",
        "b = aten.mul.default(a, y)",
        "del a, y",
        "c = aten.exp.default(b)",
        "del b",
        "return [c]",
    ]


def test_what_is_defined_and_never_used_is_deleted_at_once():
    before = trace(line("a", "copy_", "x", "y", tags=("mutation",)), returns="y")
    assert body(insert_dels(before)) == ["a = aten.copy_.default(x, y)", "del x, a", "return [y]"]
