"""A trace from anywhere: check refuses what is no program of operators, printing never turns data into code."""

from __future__ import annotations

import pytest
from thunderfx.codegen import resolve
from thunderfx.trace import (
    BoundSymbol,
    ListArg,
    Literal,
    Origin,
    Ref,
    TensorType,
    TraceCtx,
    TraceDecodeError,
    TraceError,
    Variable,
    check,
    from_json,
)

TYPE = TensorType("float32", (2,))
EVIL = "x); import os; os.system('true'"


def one_line(**fields) -> TraceCtx:
    values = {"symbol": "aten.sin.default", "args": (Ref("x"),), "outputs": (Variable("a", TYPE),)} | fields
    return TraceCtx("f", (Variable("x", TYPE),), (BoundSymbol(**values),), ListArg((Ref("a"),)))


@pytest.mark.parametrize(
    "trace",
    [
        one_line(symbol=EVIL),
        one_line(symbol="aten.sin.default\nimport os"),
        one_line(symbol=""),
        one_line(symbol="aten..default"),
        one_line(symbol="aten.lambda.default"),
        one_line(kwargs=((EVIL, 1),)),
        one_line(kwargs=(("class", 1),)),
        one_line(outputs=(Variable(EVIL, TYPE),)),
        one_line(outputs=(Variable("torch", TYPE),)),
        one_line(outputs=(Variable("x", TYPE),)),
        one_line(args=(Ref("b"),)),
        TraceCtx("f(): pass #", (), ()),
    ],
    ids=str,
)
def test_check_refuses(trace):
    with pytest.raises(TraceError):
        check(trace)


@pytest.mark.parametrize("kind", ["dtype", "layout", "memory_format", "op", "int"])
def test_a_literal_is_never_printed_as_code(kind):
    with pytest.raises(ValueError):
        one_line(args=(Literal(kind, EVIL),)).python()


@pytest.mark.parametrize("kind", ["device", "float", "complex"])
def test_a_quoted_literal_stays_quoted(kind):
    assert repr(EVIL) in one_line(args=(Literal(kind, EVIL),)).python()


def test_strings_and_comments_stay_what_they_are():
    evil = "\n    import os  # \x1b[2J\u202e"
    trace = one_line(args=(Ref("x"), evil), origin=0).replace(origins=(Origin(file="m.py", line=1, source=evil),))
    text = str(trace)
    assert "\n    import os" not in text
    assert not any(control in text for control in "\x1b\u202e")
    compile(text, "trace", "exec")


@pytest.mark.parametrize(
    "name",
    [
        "torch.os.system",
        "torch.load",
        "torch.hub.load",
        "torch.serialization.load",
        "torch.Tensor.__class__",
        "torch.ops.load_library",
        "torch.ops.aten.__class__.__init__",
        "operator.attrgetter",
        "operator.methodcaller",
        "operator.__import__",
        "math.__loader__",
        "builtins.eval",
        "eval",
        "torch.nn.functional.torch",
        "torch.nn.functional.importlib",
    ],
)
def test_only_operators_can_be_named(name):
    with pytest.raises(TraceError):
        resolve(name)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"name": 1}',
        b'{"name": "f", "inputs": [], "bound_symbols": [{}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_trace_is_refused_with_a_reason(data):
    with pytest.raises(TraceDecodeError, match="not a trace"):
        from_json(data)
