"""Difference of traces: what counts as one, and what does not."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thunderfx.trace import BoundSymbol, ListArg, Origin, Ref, TensorType, TraceCtx, Variable
from thunderfx.trace.bound_symbol import DEL, map_names
from thunderfx.trace.diff import TraceDiff, diff_traces

F32 = TensorType("float32", (4, 64))
UNARY = ("relu", "tanh", "exp")
BINARY = ("add", "sub")


def line(symbol: str, out: str, *args: object, type_: TensorType = F32, origin: int | None = None, **more: object):
    operands = tuple(Ref(a) if isinstance(a, str) else a for a in args)
    return BoundSymbol(f"aten.{symbol}", operands, outputs=(Variable(out, type_),), origin=origin, **more)


def trace(*lines: BoundSymbol, inputs: tuple[str, ...] = ("x", "y"), outputs: tuple[str, ...] = (), modules=()):
    last = outputs or (next(iter(lines[-1].defines())).name,)
    origins = tuple(Origin(module, "f", "model.py", 10 + i, "f(x)") for i, module in enumerate(modules))
    return TraceCtx("f", tuple(Variable(n, F32, n) for n in inputs), lines, ListArg(tuple(map(Ref, last))), origins)


def renamed(t: TraceCtx, rename: dict[str, str]) -> TraceCtx:
    def var(v: Variable) -> Variable:
        return Variable(rename[v.name], v.type, v.source)

    lines = tuple(
        msgspec.structs.replace(
            bound,
            args=tuple(map_names(a, rename) for a in bound.args),
            outputs=tuple(None if v is None else var(v) for v in bound.outputs),
        )
        for bound in t.bound_symbols
    )
    return t.replace(inputs=tuple(map(var, t.inputs)), bound_symbols=lines, outputs=map_names(t.outputs, rename))


def summary(d: TraceDiff) -> tuple[int, int, int]:
    return d.added, d.removed, d.changed


def differences(d: TraceDiff) -> list[tuple[str, str, tuple[str, ...]]]:
    return [
        (e.kind, (e.after or e.before).text, e.aspects)  # type: ignore[union-attr]
        for e in d.entries
        if e.kind != "equal"
    ]


@st.composite
def traces(draw: st.DrawFn, max_lines: int = 14) -> TraceCtx:
    names = ["x", "y"]
    lines = []
    for i in range(draw(st.integers(1, max_lines))):
        symbol = draw(st.sampled_from(UNARY + BINARY))
        args = [draw(st.sampled_from(names)) for _ in range(1 if symbol in UNARY else 2)]
        lines.append(line(symbol, f"t{i}", *args, origin=draw(st.integers(0, 2))))
        names.append(f"t{i}")
    outputs = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    return trace(*lines, outputs=outputs, modules=("a", "b", "c"))


@given(traces())
def test_a_trace_does_not_differ_from_itself(t: TraceCtx) -> None:
    d = diff_traces(t, t)
    assert d.is_empty
    assert d.equal == len(t.bound_symbols) + len(t.inputs) + 1


@given(traces(), st.randoms(use_true_random=False))
def test_names_del_lines_and_source_lines_do_not_count(t: TraceCtx, random) -> None:
    names = [v.name for v in t.inputs] + [v.name for bound in t.bound_symbols for v in bound.defines()]
    fresh = [f"n{i}" for i in range(len(names))]
    random.shuffle(fresh)
    other = renamed(t, dict(zip(names, fresh, strict=True)))
    moved = tuple(msgspec.structs.replace(o, file="new.py", line=o.line + 7) for o in t.origins)
    gone = BoundSymbol(DEL, (Ref(other.inputs[0].name),))
    other = other.replace(origins=moved, bound_symbols=(*other.bound_symbols, gone))
    assert diff_traces(t, other).is_empty


@given(traces(), traces())
def test_diff_of_two_traces_mirrors_that_of_the_swapped_ones(a: TraceCtx, b: TraceCtx) -> None:
    there, back = diff_traces(a, b, context=99), diff_traces(b, a, context=99)
    flip = {"added": "removed", "removed": "added"}
    mirrored = [(flip.get(e.kind, e.kind), e.part, e.after, e.before, e.aspects, e.moved) for e in back.entries]
    original = [(e.kind, e.part, e.before, e.after, e.aspects, e.moved) for e in there.entries]
    assert sorted(original, key=repr) == sorted(mirrored, key=repr)


@given(traces(), st.randoms(use_true_random=False))
def test_independent_lines_in_another_order_are_equal(t: TraceCtx, random) -> None:
    ready = {v.name for v in t.inputs}
    left, order = list(t.bound_symbols), []
    while left:
        bound = random.choice([b for b in left if ready.issuperset(b.uses())])
        left.remove(bound)
        order.append(bound)
        ready.update(v.name for v in bound.defines())
    d = diff_traces(t, t.replace(bound_symbols=tuple(order)))
    assert d.is_empty, (differences(d), t.python(), t.replace(bound_symbols=tuple(order)).python())


@given(traces(), st.data())
def test_an_inserted_line_is_the_only_difference(t: TraceCtx, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(t.bound_symbols) - 1))
    target = next(t.bound_symbols[at].defines()).name
    rename = {target: "inserted"}
    after = [
        msgspec.structs.replace(b, args=tuple(map_names(a, rename) for a in b.args)) for b in t.bound_symbols[at + 1 :]
    ]
    lines = (*t.bound_symbols[: at + 1], line("neg", "inserted", target), *after)
    d = diff_traces(t, t.replace(bound_symbols=lines, outputs=map_names(t.outputs, rename)))
    program = t.replace(bound_symbols=lines, outputs=map_names(t.outputs, rename)).python()
    assert differences(d) == [("added", f"inserted = aten.neg({target})", ())], program


def test_another_activation_is_one_line_removed_and_one_added() -> None:
    a = trace(
        line("mm", "t0", "x", "y"), line("relu", "t1", "t0"), line("mm", "t2", "t1", "y"), line("exp", "t3", "t2")
    )
    b = trace(
        line("mm", "u0", "x", "y"), line("gelu", "u1", "u0"), line("mm", "u2", "u1", "y"), line("exp", "u3", "u2")
    )
    assert [(kind, text) for kind, text, _ in differences(diff_traces(a, b))] == [
        ("removed", "t1 = aten.relu(t0)"),
        ("added", "u1 = aten.gelu(u0)"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "aspects"),
    [
        (line("sub", "t", "x", "y"), line("sub", "t", "y", "x"), ("arguments",)),
        (line("add", "t", "x", 1), line("add", "t", "x", 2), ("arguments",)),
        (line("add", "t", "x", 1), line("add", "t", "x", 1.0), ("arguments",)),
        (line("add", "t", "x", 1), line("add", "t", "x", True), ("arguments",)),
        (line("exp", "t", "x"), line("exp", "t", "x", type_=TensorType("float16", (4, 64))), ("type",)),
        (line("exp", "t", "x"), line("exp", "t", "x", executor="triton"), ("executor",)),
        (line("exp", "t", "x"), line("exp", "t", "x", tags=("recomputed",)), ("tags",)),
    ],
)
def test_a_changed_line_says_what_changed(before: BoundSymbol, after: BoundSymbol, aspects: tuple[str, ...]) -> None:
    tail = line("tanh", "z", "t")
    (found,) = differences(diff_traces(trace(before, tail), trace(after, tail)))
    assert found == ("changed", found[1], aspects)


def test_a_different_operand_is_a_change_where_both_are_known() -> None:
    head = (line("relu", "a", "x"), line("tanh", "b", "a"))
    d = diff_traces(trace(*head, line("add", "c", "b", "b")), trace(*head, line("add", "c", "b", "a")))
    assert differences(d) == [("changed", "c = aten.add(b, a)", ("arguments",))]


def test_inputs_and_outputs_are_compared() -> None:
    bound = line("relu", "a", "x")
    d = diff_traces(trace(bound), trace(bound, inputs=("x", "z"), outputs=("a", "x")))
    assert [(e.kind, e.part) for e in d.entries if e.kind != "equal"] == [
        ("removed", "input"),
        ("added", "input"),
        ("changed", "output"),
    ]


def test_a_renamed_module_is_said_once_and_its_lines_are_equal() -> None:
    lines = [line(s, f"t{i}", f"t{i - 1}" if i else "x", origin=i // 2) for i, s in enumerate(("exp", "neg", "relu"))]
    d = diff_traces(trace(*lines, modules=("net.0", "net.1")), trace(*lines, modules=("net.0", "net.2")))
    assert summary(d) == (0, 0, 0)
    assert d.renamed_modules == (("net.1", "net.2"),)
    assert not d.is_empty


def test_a_diff_survives_json() -> None:
    d = diff_traces(trace(line("sub", "t", "x", "y")), trace(line("sub", "t", "y", "x")))
    assert msgspec.json.decode(msgspec.json.encode(d), type=TraceDiff) == d


def test_hunks_keep_the_context_asked_for() -> None:
    lines = [line("exp", f"t{i}", f"t{i - 1}" if i else "x") for i in range(9)]
    d = diff_traces(trace(*lines), trace(*lines[:4], line("exp", "t4", "t3", executor="triton"), *lines[5:]))
    (hunk,) = d.hunks(1)
    assert [e.kind for e in hunk] == ["equal", "changed", "equal"]
    assert all(e.before is not None and e.before.text for e in hunk)


def long_trace(n: int, every: int = 0) -> TraceCtx:
    """``n`` lines in modules of 20; each ``every``-th line is followed by one more."""
    lines, last, previous = [], "x", "y"
    for i in range(n):
        symbol = (UNARY + BINARY)[(i * 7 + i // 5) % 5]
        lines.append(line(symbol, f"t{i}", *((last,) if symbol in UNARY else (last, previous)), origin=i // 20))
        previous, last = last, f"t{i}"
        if every and i % every == 0:
            lines.append(line("neg", f"n{i}", last, origin=i // 20))
            last = f"n{i}"
    return trace(*lines, modules=[f"blocks.{i}" for i in range(n // 20 + 1)])


def test_time_grows_linearly_with_lines() -> None:
    seconds = {}
    for n in (5_000, 20_000):
        a, b = long_trace(n), long_trace(n, every=100)
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            d = diff_traces(a, b)
            best = min(best, time.process_time() - start)
        assert summary(d) == (n // 100, 0, 0)
        seconds[n] = best
    assert seconds[20_000] < 4 * 2 * seconds[5_000]
