"""Transforms of the user's, before and after differentiation; docs/transforms.md tells them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from thunderfx import BoundSymbol, ThunderCompiler, last_traces, thunderfx, transform

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "transforms.md"


def renaming(old: str, new: str, **mark: str):
    @transform(**mark)
    def swap(trace):
        lines = [
            BoundSymbol(new, line.args, (), line.outputs, origin=line.origin) if line.symbol == old else line
            for line in trace.bound_symbols
        ]
        return trace.replace(bound_symbols=tuple(lines))

    return swap


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x, mask):
        h = torch.nn.functional.relu(self.norm(self.a(x)))
        low, high = h.chunk(2, dim=-1)
        return {"sum": (low * high)[:, ::2].to(torch.float64), "kept": h.masked_fill(mask, float("-inf")).exp()}


def gradients(net, call, *args):
    net.zero_grad()
    out = call(*args)
    sum(value.double().sum() for value in out.values()).backward()
    return {**out, **{name: p.grad for name, p in net.named_parameters()}, **dict(net.named_buffers())}


def test_the_torch_level_is_differentiated_as_transformed():
    torch.manual_seed(0)
    net, other = Net(), Net()
    other.load_state_dict(net.state_dict())
    args = (torch.randn(6, 4), torch.rand(6, 8) > 0.5)
    swap = renaming("torch.nn.functional.relu", "torch.tanh", level="torch", name="relu to tanh")
    compiled = thunderfx(net, transforms=[swap])
    got = gradients(net, compiled, *args)

    relu = torch.nn.functional.relu
    try:
        torch.nn.functional.relu = torch.tanh
        want = gradients(other, other, *args)
    finally:
        torch.nn.functional.relu = relu
    assert compiled.fallbacks == []
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, msg=lambda text, name=name: f"{name}: {text}")
    (before,) = last_traces(compiled, "graph", stage="torch")
    (after,) = last_traces(compiled, "graph", stage="torch:relu to tanh")
    assert "relu" in str(before) and "relu" not in after.python() and "torch.tanh" in after.python()
    (backward,) = last_traces(compiled, "backward")
    line = next(line for line in backward.bound_symbols if "tanh_backward" in line.symbol)
    assert "relu(self.norm" in backward.origin_of(line).source, "the new line keeps the origin of the old one"


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_rebuilt_graph_computes_the_same(dynamic):
    """Every line goes through the way back, with views, in-place operators, random numbers and a branch."""

    @transform(level="torch")
    def copy(trace):
        return trace.replace(provenance="a copy")

    def f(x, n):
        y = x.clone()
        y[:, 1:].mul_(2)
        a, b = torch.split(y, [1, 2], dim=1)
        c = torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (b,))
        return torch.nn.functional.dropout(c, 0.5), a + n, y.shape[0], y.to(torch.bfloat16), x.new_zeros(2, 3)

    x = torch.randn(5, 3)
    torch.manual_seed(1)
    want = f(x, 2.5)
    compiled = thunderfx(f, transforms=[copy], dynamic=dynamic)
    torch.manual_seed(1)
    got = compiled(x, 2.5)
    assert compiled.fallbacks == []
    torch.testing.assert_close(got, want)


def test_a_failing_torch_level_transform_leaves_the_graph_as_it_was():
    @transform(level="torch")
    def nonsense(trace):
        return trace.replace(bound_symbols=trace.bound_symbols[1:])

    x = torch.randn(3)
    compiled = thunderfx(lambda x: x.sin().cos(), transforms=[nonsense])
    torch.testing.assert_close(compiled(x), x.sin().cos())
    ((_, fallback),) = compiled.fallbacks
    assert (fallback.where, fallback.stage) == ("graph", "torch:nonsense")
    with pytest.raises(Exception, match="never defined"):
        thunderfx(lambda x: x.sin().cos(), transforms=[nonsense], strict=True)(x)


def test_levels_and_stages_are_named_when_wrong():
    with pytest.raises(ValueError, match="'torch', 'aten', not 'fx'"):
        transform(level="fx")
    backend = ThunderCompiler()
    torch.compile(torch.sin, backend=backend)(torch.ones(2))
    assert [trace.name for trace in last_traces(backend)] == ["forward"]
    with pytest.raises(ValueError, match="no forward trace after stage 'nope'; stages: forward, "):
        last_traces(backend, stage="nope")
    with pytest.raises(ValueError, match="direction is one of"):
        last_traces(backend, "sideways")


def test_the_examples_of_the_document_run(capsys):
    programs = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(programs) == 2
    for program in programs:
        exec(compile(program, str(DOCUMENT), "exec"), {"__name__": "example"})
    assert "torch.nn.functional.silu" in capsys.readouterr().out
