"""A fast entry point dispatches to exactly the overload that it stands for."""

from __future__ import annotations

import pytest
import torch
from thunderfx.codegen.fast_calls import METHODS, SEVERAL_OVERLOADS, fast_call
from thunderfx.codegen.resolve import resolve
from torch.utils._python_dispatch import TorchDispatchMode

X, Y = torch.randn(4, 6), torch.randn(4, 6)
ARGUMENTS = {
    "aten.add.Tensor": [((X, Y), {}), ((X, Y), {"alpha": 2}), ((X, 1), {}), ((X, 0.5), {})],
    "aten.sub.Tensor": [((X, Y), {}), ((X, Y), {"alpha": 2}), ((X, 1), {})],
    "aten.mul.Tensor": [((X, Y), {}), ((X, 2.0), {}), ((X, True), {})],
    "aten.div.Tensor": [((X, Y), {}), ((X, 3), {})],
    "aten.mean.dim": [((X, [0]), {}), ((X, [0, 1], True), {}), ((X, None), {}), ((X, [-1]), {"dtype": torch.float64})],
    "aten.sum.dim_IntList": [((X, [0], True), {}), ((X, [0, 1]), {"dtype": torch.float64}), ((X, None), {})],
    "aten.sum.default": [((X,), {}), ((X,), {"dtype": torch.float64})],
    "aten.select.int": [((X, 1, 0), {}), ((X, -1, -1), {})],
    "aten.split.Tensor": [((X, 2), {}), ((X, 3, -1), {})],
    "aten.transpose.int": [((X, 0, 1), {}), ((X, -2, -1), {})],
    "aten.pow.Tensor_Scalar": [((X, 2), {}), ((X, 0.5), {})],
    "aten.where.self": [((X > 0, X, Y), {})],
    "aten.squeeze.dim": [((X, 0), {})],
    "aten.max_pool2d_with_indices.default": [((torch.randn(1, 1, 4, 4), [2, 2]), {})],
    "aten.view.default": [((X, [24]), {}), ((X, [2, -1]), {})],
    "aten.expand.default": [((X[:1], [4, 6]), {}), ((X, [2, 4, 6]), {"implicit": True}), ((X, [2, -1, -1]), {})],
    "aten.addmm.default": [((torch.randn(3), X, torch.randn(6, 3)), {}), ((Y, X, torch.ones(6, 6)), {"beta": 2})],
    "aten.gelu.default": [((X,), {}), ((X,), {"approximate": "tanh"})],
    "aten.native_layer_norm.default": [((X, [6], None, None, 1e-5), {})],
    "aten.permute.default": [((X, [1, 0]), {})],
    "aten.t.default": [((X,), {})],
    "aten.bmm.default": [((torch.randn(2, 3, 4), torch.randn(2, 4, 5)), {})],
    "aten.mm.default": [((X, torch.ones(6, 2)), {})],
    "aten.add_.Tensor": [((X, Y), {}), ((X, Y), {"alpha": 2}), ((X, 1), {})],
    "aten.sub_.Tensor": [((X, Y), {}), ((X, Y), {"alpha": 2}), ((X, 1), {})],
    "aten.mul_.Tensor": [((X, Y), {}), ((X, 2.0), {})],
    "aten.div_.Tensor": [((X, Y), {}), ((X, 3), {})],
    "aten.relu_.default": [((X,), {})],
    "aten.tanh_.default": [((X,), {})],
    "aten.neg_.default": [((X,), {})],
}


def copied(args):
    return tuple(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_fast_call_runs_the_same_overload(name):
    overload = resolve(name)
    fast = fast_call(overload)
    assert fast is not overload._op
    for args, kwargs in ARGUMENTS[name]:
        with torch._C._AutoDispatchBelowAutograd(), Recorder() as want:
            expected = overload._op(*copied(args), **kwargs)
        with torch._C._AutoDispatchBelowAutograd(), Recorder() as got:
            result = fast(*copied(args), **kwargs)
        assert got.seen == want.seen
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_every_listed_operator_is_tested():
    assert SEVERAL_OVERLOADS | METHODS <= set(ARGUMENTS)


@pytest.mark.parametrize(
    "name", ["aten.copy_.default", "aten.eq.Tensor", "aten.arange.start", "aten.rand.default", "aten.max.dim"]
)
def test_others_keep_the_overloads_own_callable(name):
    overload = resolve(name)
    assert fast_call(overload) is overload._op


def test_a_default_that_torchs_argument_parser_misreads_is_left_to_the_operator():
    found = 0
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ():
            op = getattr(packet, overload)
            if any(arg.name == "reduction" and arg.has_default_value() for arg in op._schema.arguments):
                found += 1
                assert fast_call(op) is op._op, name
    assert found > 10
    loss = torch.ops.aten.mse_loss.default
    assert fast_call(loss)(X, Y).shape == ()
