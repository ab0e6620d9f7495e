from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from thunderfx_cli.errors import UsageError
from thunderfx_cli.loading.inputs import InputSpec, as_arguments, make_tensor, merge_specs, move_to, parse_input


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("x=4x64", InputSpec("x", (4, 64), "float32")),
        ("x=4x64:bf16", InputSpec("x", (4, 64), "bfloat16")),
        ("x=:f64", InputSpec("x", (), "float64")),
        ("x=0x3:bool", InputSpec("x", (0, 3), "bool")),
        ("x=2:int64", InputSpec("x", (2,), "int64")),
        ("t=2x8:i64:0..100", InputSpec("t", (2, 8), "int64", 0, 100)),
        ("t=2:i8:-3..3", InputSpec("t", (2,), "int8", -3, 3)),
        ("x=2:f32:-0.5..1e3", InputSpec("x", (2,), "float32", -0.5, 1000.0)),
    ],
)
def test_grammar(text: str, spec: InputSpec) -> None:
    assert parse_input(text) == spec


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("4x64", "not understood"),
        ("x", "not understood"),
        ("x=4y4", "not understood"),
        ("x=-1", "not understood"),
        ("x=4x", "not understood"),
        ("x=4:f31", "no dtype 'f31'"),
        ("x=4:i64:5..5", "is empty"),
        ("x=4:i64:0.5..2", "is not a range"),
        ("x=4:bool:0..1", "takes no range"),
    ],
)
def test_grammar_errors(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        parse_input(text)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "bool", "c64"])
def test_every_dtype_makes_a_tensor(dtype: str) -> None:
    spec = parse_input(f"x=3x5:{dtype}")
    tensor = make_tensor(spec)
    assert (tuple(tensor.shape), str(tensor.dtype)) == ((3, 5), f"torch.{spec.dtype}")


def test_values_stay_in_the_range() -> None:
    tokens = make_tensor(parse_input("t=1000:i64:5..8"))
    assert set(tokens.tolist()) == {5, 6, 7}
    uniform = make_tensor(parse_input("x=1000:f32:2..3"))
    assert 2 <= uniform.min() and uniform.max() <= 3
    assert set(make_tensor(parse_input("t=100:i64")).tolist()) == {0, 1}


def test_range_must_fit_the_dtype() -> None:
    with pytest.raises(UsageError, match="does not fit uint8"):
        make_tensor(parse_input("t=2:u8:0..300"))


def test_as_arguments() -> None:
    assert as_arguments((1, 2)) == ((1, 2), {})
    assert as_arguments([1]) == ((1,), {})
    assert as_arguments({"x": 1}) == ((), {"x": 1})
    assert as_arguments(5) == ((5,), {})


def merged(fn: Any, texts: list[str], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Shapes instead of tensors, so that results can be compared."""
    out_args, out_kwargs = merge_specs([parse_input(t) for t in texts], args, kwargs or {}, inspect.signature(fn))

    def shape(value: Any) -> Any:
        return tuple(value.shape) if isinstance(value, torch.Tensor) else value

    return tuple(map(shape, out_args)), {key: shape(value) for key, value in out_kwargs.items()}


def test_merging_by_name() -> None:
    def f(x: Any, y: Any, z: Any = None) -> None: ...

    assert merged(f, ["y=2", "x=1"]) == (((1,), (2,)), {})
    assert merged(f, ["y=2"], ("kept", "replaced")) == (("kept", (2,)), {})
    assert merged(f, ["z=3"], ("a", "b")) == (("a", "b", (3,)), {})
    assert merged(f, ["z=3"], ("a",), {"y": "b"}) == (("a",), {"y": "b", "z": (3,)})
    assert merged(f, ["x=1"], (), {"x": "old", "y": "b"}) == ((), {"x": (1,), "y": "b"})


def test_merging_with_variadic_parameters() -> None:
    assert merged(lambda *xs: None, ["a=1", "b=2"]) == (((1,), (2,)), {})
    assert merged(lambda **kw: None, ["a=1"]) == ((), {"a": (1,)})
    assert merged(lambda x, **kw: None, ["a=1", "x=2"]) == (((2,),), {"a": (1,)})


def test_unknown_name_lists_the_parameters() -> None:
    with pytest.raises(UsageError, match="--input q: the model has no such parameter") as caught:
        merged(lambda x, y: None, ["q=1"])
    assert caught.value.hint == "It has: x, y."


def test_missing_input_is_named() -> None:
    with pytest.raises(UsageError, match="do not fit") as caught:
        merged(lambda x, y: None, ["x=1"])
    assert caught.value.hint == "Add --input y=4x64:f32."


def test_move_to_reaches_nested_tensors_and_keeps_leaves() -> None:
    value = {"x": [torch.ones(2, requires_grad=True)], "n": 3}
    moved = move_to(value, "meta")
    assert moved["n"] == 3
    assert moved["x"][0].device.type == "meta"
    assert moved["x"][0].is_leaf and moved["x"][0].requires_grad
    assert move_to(value, "cpu")["x"][0] is value["x"][0]
