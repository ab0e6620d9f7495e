"""Calls that do without AOTAutograd's wrapper, and those that must not."""

from __future__ import annotations

import copy

import pytest
import torch
from thunderfx import thunderfx
from thunderfx.dynamo import direct
from torch import nn


def warm(fn, *args):
    """``fn`` compiled and called until calls are direct."""
    compiled = thunderfx(fn)
    for _ in range(3):
        out = compiled(*args)
        if out.requires_grad:
            out.sum().backward()
    for tensor in [*args, *(fn.parameters() if isinstance(fn, nn.Module) else ())]:
        tensor.grad = None
    return compiled


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def is_direct(output) -> bool:
    """The output was made by the subclass of AOTAutograd's function that ``direct`` makes."""
    return any(kind.__module__ == direct.__name__ for kind in type(output.grad_fn)._forward_cls.__mro__)


def test_the_third_call_is_direct():
    x, compiled = leaf(3), thunderfx(lambda x: x.sin() * 2)
    seen = []
    for _ in range(3):
        out = compiled(x)
        seen.append(is_direct(out))
        out.sum().backward()
    assert seen == [False, False, True]
    torch.testing.assert_close(x.grad, 3 * 2 * x.detach().cos())


def test_a_call_without_a_backward_before_it_is_general():
    x, compiled = leaf(3), thunderfx(lambda x: x.sin() * 2)
    for _ in range(3):
        out = compiled(x)
    assert not is_direct(out)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.mul_(2) * 3,
        lambda x: (x * 2).view(-1)[:2],
    ],
    ids=["changes its input", "output is a view of an intermediate"],
)
def test_what_the_wrapper_has_work_for(fn):
    x = leaf(3, 2)
    compiled = warm(lambda x: fn(x + 0), x)
    want, got = fn(x + 0), compiled(x)
    torch.testing.assert_close(got, want)
    y = torch.randn(3, 2)
    eager, given = y.clone(), y.clone()
    inference = thunderfx(fn)
    for _ in range(3):
        torch.testing.assert_close(inference(given), fn(eager))
        torch.testing.assert_close(given, eager)


def test_grad_mode():
    x = leaf(3)
    compiled = warm(lambda x: x.sin() * 2, x)
    with torch.no_grad():
        out = compiled(x)
        assert torch.is_grad_enabled() is False
    assert not out.requires_grad
    assert is_direct(compiled(x))
    with torch.inference_mode():
        assert compiled(x).is_inference()


def test_a_function_that_fails_leaves_grad_mode_as_it_was():
    compiled = thunderfx(lambda table, index: table[index] * 2)
    table, good = torch.randn(4), torch.tensor([0])
    for _ in range(3):
        compiled(table, good)
    with pytest.raises(IndexError):
        compiled(table, torch.tensor([7]))
    assert torch.is_grad_enabled()


def test_double_backward_is_refused_as_by_aot_eager():
    x = leaf(3)
    for compiled in (warm(lambda x: x.sin() * 2, x), torch.compile(lambda x: x.sin() * 2, backend="aot_eager")):
        (grad,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="does not currently support double backward"):
            grad.sum().backward()


def test_retain_graph():
    model = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    loss = warm(model, x)(x).sum()
    loss.backward(retain_graph=True)
    first = model.weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(model.weight.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_saved_values_that_changed_are_noticed():
    x, y = leaf(3), torch.randn(3)
    compiled = warm(lambda x, y: x * y, x, y)
    out = compiled(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded", "channels last"])
def test_gradients_of_any_layout(layout):
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU())
    x = torch.randn(2, 2, 4, 4)
    grad = {
        "contiguous": torch.randn(2, 4, 4, 4),
        "transposed": torch.randn(2, 4, 4, 4).transpose(2, 3),
        "expanded": torch.randn(1, 4, 1, 4).expand(2, 4, 4, 4),
        "channels last": torch.randn(2, 4, 4, 4).to(memory_format=torch.channels_last),
    }[layout]
    reference = copy.deepcopy(model)
    compiled = warm(model, x)
    for _ in range(2):
        reference(x).backward(grad)
        compiled(x).backward(grad)
    for want, got in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad)


def test_inputs_that_are_no_leaves():
    def fn(x, y):
        return x.sin() * y.detach()

    x, y = leaf(3), leaf(3)
    compiled = thunderfx(fn)
    for _ in range(3):
        compiled(x * 1, y * 1).sum().backward()
    assert y.grad is None
    torch.testing.assert_close(x.grad, 3 * x.detach().cos() * y.detach())


def test_functional_transforms_of_a_warm_function():
    def fn(x, y):
        return x.sin() * y

    x, y = leaf(3), torch.randn(4, 3)
    compiled = warm(fn, x, torch.randn(3))
    got = torch.func.vmap(compiled, (None, 0))(x, y)
    torch.testing.assert_close(got, torch.func.vmap(fn, (None, 0))(x, y))
    tangents = (torch.randn(3), torch.randn(3))
    primals = (x.detach(), y[0])
    torch.testing.assert_close(torch.func.jvp(compiled, primals, tangents), torch.func.jvp(fn, primals, tangents))


def test_saved_tensor_hooks():
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    x = leaf(3)
    compiled = warm(lambda x: x.sin() * 2, x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled(x).sum().backward()
    assert packed
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())


def test_compiled_autograd():
    x = leaf(3)
    compiled = warm(lambda x: x.sin() * 2, x)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())


def test_batch_norm_statistics_over_direct_calls():
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())
    reference = copy.deepcopy(model)
    compiled = thunderfx(model)
    for _ in range(4):
        x = torch.randn(2, 2, 5, 5)
        for net in (compiled, reference):
            (net(x).sum() + net(x * 2).mean()).backward()
    for (name, want), got in zip(reference.named_buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(got, want, msg=lambda text, name=name: f"{name}: {text}")
    for want, got in zip(reference.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-4)


def test_an_unknown_torch_goes_through_aot_autograds_wrapper(monkeypatch):
    monkeypatch.setattr(direct, "IS_CHECKED", False)
    torch._dynamo.reset()
    model, x = nn.Linear(3, 3), torch.randn(2, 3)
    out = warm(model, x)(x)
    torch.testing.assert_close(out, model(x))
    assert not is_direct(out)
