"""Where AOTAutograd refuses a graph or differentiates it wrongly, the result is eager's all the same."""

from __future__ import annotations

import copy

import pytest
import torch
from thunderfx import thunderfx
from thunderfx.dynamo.compiler import ThunderCompileError


class WritesThenUses(torch.nn.Module):
    """Changes a parameter under no_grad before it uses it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))

    def forward(self, x):
        with torch.no_grad():
            self.weight.lerp_(x.mean(0), 0.1)
        return x * self.weight


class UsesThenWrites(torch.nn.Module):
    """Reads a buffer, then changes it: the backward needs the old value."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.linspace(1, 2, 6))

    def forward(self, x):
        y = x.sin() * self.scale.clone()
        self.scale.mul_(3)
        return y


@pytest.mark.parametrize("module", [WritesThenUses, UsesThenWrites])
def test_values_read_from_a_changed_input_are_the_old_ones(module):
    torch.manual_seed(0)
    eager = module()
    compiled = thunderfx(copy.deepcopy(eager))
    x = torch.randn(3, 6, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    for _ in range(2):
        want, got = eager(x), compiled(y)
        torch.testing.assert_close(got, want)
        want.square().sum().backward()
        got.square().sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
    torch.testing.assert_close(compiled.state_dict(), eager.state_dict())
    assert compiled.fallbacks == []


def test_backward_of_a_value_that_was_changed_raises_as_in_eager():
    def multiply_then_change(x, factor):
        y = x * factor
        factor.detach().mul_(0)
        return y

    for fn in (multiply_then_change, thunderfx(multiply_then_change)):
        x, factor = torch.randn(4, requires_grad=True), torch.full((4,), 3.0)
        y = fn(x, factor)
        assert not factor.any()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def pinv_norm(a):
    p = torch.linalg.pinv(a)
    return (p.conj() * p).real.sum()


def test_known_wrong_gradient_runs_in_eager_and_says_so():
    torch.manual_seed(0)
    a = torch.randn(3, 2, dtype=torch.complex128, requires_grad=True)
    b = a.detach().clone().requires_grad_()
    compiled = thunderfx(pinv_norm)
    compiled(a).backward()
    pinv_norm(b).backward()
    torch.testing.assert_close(a.grad, b.grad)
    ((index, fallback),) = compiled.fallbacks
    assert (index, fallback.where, fallback.stage) == (0, "graph", "AOTAutograd")
    assert "pinv" in fallback.reason
    assert compiled.subgraph_infos[0].backward_status == "in eager"


def test_strict_refuses_what_would_run_in_eager():
    a = torch.randn(3, 2, dtype=torch.complex128, requires_grad=True)
    with pytest.raises(Exception, match="pinv") as caught:
        thunderfx(pinv_norm, strict=True)(a)
    cause = caught.value
    while cause is not None and not isinstance(cause, ThunderCompileError):
        cause = cause.__cause__ or getattr(cause, "inner_exception", None)
    assert cause is not None


def test_a_graph_that_aotautograd_refuses_runs_in_eager():
    x = torch.randn(6, 4)
    sections = torch.tensor([2, 3])

    def split(x, sections):
        return torch.tensor_split(x, sections)

    compiled = thunderfx(split)
    for want, got in zip(split(x, sections), compiled(x, sections), strict=True):
        assert torch.equal(want, got)


def test_view_of_one_of_several_overlapping_inputs():
    def write_then_look(whole, late):
        whole.mul_(-1)
        return late[0], late.sum()

    whole = torch.arange(20.0).reshape(5, 4)
    row, total = thunderfx(write_then_look)(whole, whole[2:])
    assert torch.equal(row, whole[2])
    assert row.data_ptr() == whole[2].data_ptr()
    assert total == whole[2:].sum()


def test_forward_mode_tangent_comes_through():
    def cube(x):
        return (x**3).sum()

    x = torch.tensor([0.5, -1.0])
    with torch.autograd.forward_ad.dual_level():
        out = thunderfx(cube)(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        tangent = torch.autograd.forward_ad.unpack_dual(out).tangent
    torch.testing.assert_close(tangent, (3 * x**2).sum())
