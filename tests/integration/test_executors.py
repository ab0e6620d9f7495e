"""Executors on real models: Inductor whole and in regions, other packages', and those that the docs show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from observe import observe
from test_hf import MODELS as REAL
from test_hf import observed
from test_semantics import MODELS, random_numbers
from thunderfx import ThunderCompiler, thunderfx
from thunderfx.dynamo import ThunderCompileError
from thunderfx.executors import FusionExecutor
from thunderfx.trace import from_json, to_json, unfused
from thunderfx.trace.bound_symbol import DEL
from torch import nn

DOCS = Path(__file__).parents[2] / "docs"


def lines(trace):
    return [line for line in trace.bound_symbols if line.symbol != DEL]


def assert_same(want, got):
    assert len(want) == len(got)
    for expected, found in zip(want, got, strict=True):
        if isinstance(expected, tuple):
            assert expected[0] == found[0]
            expected, found = expected[1], found[1]
        if expected is None or found is None:
            assert expected is found
            continue
        if expected.is_floating_point() and expected.dtype.itemsize == 1:
            expected, found = expected.float(), found.float()
        torch.testing.assert_close(found, expected, equal_nan=True)


def compare(make, executors, calls=3):
    torch._dynamo.reset()
    made = []

    def compiled(fn):
        made.append(thunderfx(fn, executors=executors))
        return made[0]

    assert_same(observe(make, lambda fn: fn, calls), observe(make, compiled, calls))
    assert made[0].fallbacks == []
    return made[0]


@pytest.mark.parametrize(
    "name",
    [
        "losses of the mean",
        "autocast inside",
        "checkpoint",
        "autograd function, in place",
        "vmap",
        "sizes from data",
        "write through a view of an input",
        "outputs alias an input",
        "outputs alias each other",
        "same tensor passed twice",
        "channels last",
        "zero size and zero dim",
        "dtypes",
        "tied weights",
        "item assignment",
    ],
)
@pytest.mark.parametrize("executors", [["inductor"], ["sdpa", "inductor"]], ids=["whole", "regions"])
def test_inductor_is_like_eager(name, executors):
    compare(MODELS[name], executors)


def test_random_numbers_are_eagers():
    compare(lambda: (random_numbers, (torch.randn(3, requires_grad=True),)), ["inductor"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("build", [b for b in REAL if b.__name__ in ("llama", "bert")], ids=lambda b: b.__name__)
def test_real_models_through_inductor(build):
    import copy

    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = build()
    other = copy.deepcopy(model)
    expected = observed(model, model, inputs)
    compiled = thunderfx(other, executors=["inductor", "torch"])
    actual = observed(other, compiled, inputs)
    assert compiled.fallbacks == [] and len(lines(compiled.last_backward_traces[0])) == 1
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-4, atol=1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, dim=-1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).flatten(2))


def test_whole_traces_are_one_line_with_its_source():
    compiled = compare(lambda: (Block(), (torch.randn(2, 6, 16, requires_grad=True),)), ["inductor"])
    for trace in (compiled.last_traces[0], compiled.last_backward_traces[0]):
        (line,) = lines(trace)
        assert line.executor == "inductor" and line.has_tag("fused") and len(line.subsymbols) > 10
        (record,) = trace.fusions
        assert "def call(" in record.source and record.statistics["kernels"] >= 1


def test_regions_around_attention_say_why_it_stayed_out():
    compiled = compare(lambda: (Block(), (torch.randn(2, 6, 16, requires_grad=True),)), ["sdpa", "inductor"])
    before, attention, after = lines(compiled.last_traces[0])
    assert [line.executor for line in (before, attention, after)] == ["inductor", "sdpa", "inductor"]
    assert attention.why == "inductor: sdpa comes before it"


def test_a_fused_trace_that_was_stored_runs_again():
    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        model = Block()
        compiled = thunderfx(model, executors=["inductor"])
        want = compiled(x)
    trace = from_json(to_json(compiled.last_traces[0]))
    given = {name: value for name, value in model.named_parameters()} | {"x": x}
    assert len(lines(unfused(trace))) > 10
    with torch.no_grad():
        got = trace.python_callable()(*[given[var.source] for var in trace.inputs])
    torch.testing.assert_close(got[0], want)


def test_five_batch_sizes_through_inductor_make_two_subgraphs():
    torch._dynamo.reset()
    model = Block()
    compiled = thunderfx(model, executors=["sdpa", "inductor"])
    for batch in (2, 3, 5, 7, 9):
        x = torch.randn(batch, 6, 16, requires_grad=True)
        got, want = compiled(x), model(x)
        torch.testing.assert_close(got, want)
        (gradient,) = torch.autograd.grad(got.sum(), x)
        torch.testing.assert_close(gradient, torch.autograd.grad(want.sum(), x)[0])
    assert len(compiled.subgraph_infos) == 2 and compiled.fallbacks == []


def three_products(x):
    w = torch.ones(8, 8) / 8
    y = (x @ w).exp()
    return (((y @ w).tanh() @ w) * 0.1).exp()


@pytest.mark.parametrize("executors", [None, ["inductor"], ["sdpa", "inductor"]])
def test_a_graph_can_be_kept(executors):
    """Inductor would overwrite saved tensors otherwise, and torch refuse to keep the graph (``donated buffers``)."""
    torch._dynamo.reset()
    x = torch.randn(8, 8, requires_grad=True)
    compiled = thunderfx(three_products, executors=executors)
    for _ in range(4):
        torch.autograd.grad(compiled(x).sum(), x)
        loss = compiled(x).sum()
        (first,) = torch.autograd.grad(loss, x, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(loss, x)[0], first)


class Broken(FusionExecutor):
    name = "broken"

    def can_fuse(self, line):
        return True

    def compile(self, region):
        raise RuntimeError("out of luck")


def test_a_region_that_does_not_compile_is_a_fallback_and_strict_raises():
    torch._dynamo.reset()
    x = torch.randn(3)
    compiled = thunderfx(lambda x: x.sin() + x, executors=[Broken()])
    torch.testing.assert_close(compiled(x), x.sin() + x)
    ((index, fallback),) = compiled.fallbacks
    assert (index, fallback.where, fallback.stage) == (0, "forward", "broken")
    assert fallback.reason == "RuntimeError: out of luck"
    assert lines(compiled.last_traces[0])[0].executor == "torch"
    torch._dynamo.reset()
    with pytest.raises(Exception, match="out of luck") as caught:
        torch.compile(lambda x: x.sin() + x, backend=ThunderCompiler(executors=[Broken()], strict=True))(x)
    assert isinstance(caught.value, ThunderCompileError) or "ThunderCompileError" in str(caught.value)


def test_the_documented_executors_work():
    torch._dynamo.reset()
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "executors.md").read_text(), re.DOTALL):
        exec(block, scope)
    assert "aten.tanh.default" in scope["compiled"].last_traces[0].fusions[0].source


PLUGIN = """\
import torch
from thunderfx.executors import OperatorExecutor

calls = []

def doubled_sine(x):
    calls.append(tuple(x.shape))
    return torch.ops.aten.sin.default(x)

class Sine(OperatorExecutor):
    name = "sine"

    def can_execute(self, line):
        return line.symbol == "aten.sin.default"

    def implementation(self, line):
        return doubled_sine
"""
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "thunderfx-sine"
version = "1.0"

[project.entry-points."thunderfx.executors"]
sine = "thunderfx_sine:Sine"
broken = "thunderfx_sine:Missing"

[tool.setuptools]
py-modules = ["thunderfx_sine"]
"""
USE = """\
import json, torch, thunderfx_sine
from thunderfx import thunderfx

x = torch.randn(5)
compiled = thunderfx(lambda x: x.sin() * 2, executors=["sine"])
torch.testing.assert_close(compiled(x), x.sin() * 2)
try:
    thunderfx(lambda x: x, executors=["broken"])
except ValueError as e:
    message = str(e)
line = compiled.last_traces[0].bound_symbols[0]
print(json.dumps([thunderfx_sine.calls, line.executor, line.symbol, message]))
"""


def test_an_installed_package_brings_an_executor(tmp_path):
    package, site = tmp_path / "package", tmp_path / "site"
    package.mkdir()
    (package / "thunderfx_sine.py").write_text(PLUGIN)
    (package / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "use.py").write_text(USE)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(package)], check=True, timeout=200)
    env = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "use.py")], capture_output=True, text=True, env=env, timeout=200
    )
    assert done.returncode == 0, done.stderr
    calls, executor, symbol, message = json.loads(done.stdout.splitlines()[-1])
    assert (calls, executor, symbol) == ([[5]], "sine", "sine_sin")
    assert message.startswith(
        "executor 'broken' (thunderfx_sine:Missing of thunderfx-sine) cannot be loaded: AttributeError"
    )
