"""Memory of lines from types, views and dels."""

from __future__ import annotations

from thunderfx.profiling.sizes import Sizes, sizes_of
from thunderfx.profiling.storage import Change, saved, track
from thunderfx.trace import BoundSymbol, ListArg, Ref, ScalarType, TensorType, TraceCtx, Variable
from thunderfx.trace.bound_symbol import DEL

F32 = TensorType("float32", (4, 4))  # 64 bytes
HALF = TensorType("float32", (2, 4))  # 32 bytes


def line(symbol: str, *names: str, out: str = "", type_: TensorType = F32, tags: tuple[str, ...] = (), **kwargs: str):
    outputs = (Variable(out, type_),) if out else ()
    more = tuple((key, Ref(name)) for key, name in kwargs.items())
    return BoundSymbol(symbol, tuple(map(Ref, names)), more, outputs, tags=tags)


def delete(*names: str) -> BoundSymbol:
    return BoundSymbol(DEL, tuple(map(Ref, names)))


def trace(*lines: BoundSymbol, returns: tuple[str, ...] = (), inputs: tuple[Variable, ...] = (Variable("x", F32),)):
    return TraceCtx("forward", inputs, lines, ListArg(tuple(map(Ref, returns))))


def changes(*lines: BoundSymbol, **fields) -> list[tuple[int, int, int]]:
    found = track(trace(*lines, **fields), Sizes()).changes
    return [(change.allocated, change.freed, change.live) for change in found]


def test_a_result_is_made_and_freed_with_its_last_name():
    lines = (line("aten.sin.default", "x", out="a"), delete("x"), line("aten.cos.default", "a", out="b"), delete("a"))
    assert changes(*lines) == [(64, 0, 64), (0, 0, 64), (64, 0, 128), (0, 64, 64)]


def test_a_view_keeps_the_memory_of_what_it_shows():
    lines = (
        line("aten.sin.default", "x", out="a"),
        line("aten.t.default", "a", out="v", tags=("view",)),
        delete("a"),
        line("aten._unsafe_view.default", "v", out="w"),
        delete("v"),
        delete("w"),
    )
    assert changes(*lines) == [(64, 0, 64), (0, 0, 64), (0, 0, 64), (0, 0, 64), (0, 0, 64), (0, 64, 0)]


def test_operators_in_place_make_nothing():
    lines = (
        line("aten.sin.default", "x", out="a"),
        line("aten.mul_.Tensor", "a", "x", out="b", tags=("mutation",)),
        delete("a"),
        line("aten.tanh_backward.grad_input", "b", "x", out="c", tags=("mutation",), grad_input="b"),
        delete("b", "c"),
    )
    assert changes(*lines) == [(64, 0, 64), (0, 0, 64), (0, 0, 64), (0, 0, 64), (0, 64, 0)]


def test_what_changes_another_operand_has_results_of_its_own():
    norm = line("aten._native_batch_norm_legit.default", "x", "x", out="a", tags=("mutation",))
    assert changes(norm) == [(64, 0, 64)]


def test_a_fusion_that_returns_a_view_of_a_member():
    members = (line("aten.sin.default", "x", out="a"), line("aten.t.default", "a", out="v", tags=("view",)))
    fused = BoundSymbol(
        "fusion0", (ListArg((Ref("x"),)),), outputs=(Variable("a", F32), Variable("v", F32)), unpack=True,
        subsymbols=members, tags=("fused", "view"),
    )  # fmt: skip
    assert changes(fused, delete("a"), delete("v")) == [(64, 0, 64), (0, 0, 64), (0, 64, 0)]


def test_a_backward_holds_what_was_saved_for_it_once():
    split = trace(line("aten.sin.default", "x", out="a"), returns=("a", "old", "x"))
    made = trace(
        line("aten.sin.default", "x", out="a"),
        line("aten.t.default", "a", out="v", tags=("view",)),
        returns=("a", "v", "x"),
    )
    forward = track(made, Sizes())
    given = saved(forward, split, made)
    inputs = tuple(Variable(name, F32) for name in ("a", "old", "x"))
    backward = trace(line("aten.cos.default", "a", out="g"), delete("a"), delete("old"), delete("x"), inputs=inputs)
    assert track(backward, Sizes(), given).changes == [
        Change(64, 0, 128),
        Change(0, 0, 128),
        Change(0, 64, 64),
        Change(0, 0, 64),
    ]


def test_symbolic_sizes_come_from_the_inputs():
    class Given:
        shape = (6, 4)

    symbolic = TensorType("float32", ("s0", 4))
    inputs = (Variable("n", ScalarType("SymInt", "s1")), Variable("x", symbolic))
    known = sizes_of(trace(inputs=inputs), [3, Given()])
    assert known == {"s0": 6, "s1": 3}
    sizes = Sizes(known)
    assert sizes.number("(s0*s1//4)") == 4
    assert sizes.number("Max(1, s0 - 8)") == 1
    assert sizes.number("u0 + 1") is None
    assert sizes.nbytes(symbolic) == 96
    assert sizes.nbytes(TensorType("float32", ("u0",))) is None
    assert sizes.touched_bytes(TensorType("float32", ("s0", 4), stride=(0, 1))) == 16
