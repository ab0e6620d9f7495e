"""Generated Triton kernels, run by Triton's interpreter, against eager in float64."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thunderfx import thunderfx

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
R = torch.randn


def deep(x):
    for _ in range(400):
        x = (x + 1).sin()
    return x


def leaves(args, dtype=None):
    def leaf(x):
        x = x.detach().clone()
        return (x.to(dtype) if dtype and x.is_floating_point() else x).requires_grad_(x.is_floating_point())

    return [leaf(arg) for arg in args]


def outcome(fn, args):
    """Outputs and gradients."""
    found = fn(*args)
    outputs = list(found) if isinstance(found, (tuple, list)) else [found]
    wanted = [arg for arg in args if arg.requires_grad]
    differentiable = [out for out in outputs if out.requires_grad]
    gradients = ()
    if differentiable and wanted:
        weights = [torch.linspace(0.5, 1, out.numel()).reshape(out.shape).to(out) for out in differentiable]
        gradients = torch.autograd.grad(differentiable, wanted, weights, allow_unused=True)
    return [*outputs, *gradients]


def check(fn, *args, fused=True):
    """As near to float64 as eager is, twice over; ``fused``: that kernels ran."""
    torch._dynamo.reset()
    compiled = thunderfx(fn, executors=["triton"])
    got, eager, exact = (
        outcome(compiled, leaves(args)),
        outcome(fn, leaves(args)),
        outcome(fn, leaves(args, torch.float64)),
    )
    assert len(got) == len(eager)
    outputs = len(got) - sum(arg.requires_grad for arg in leaves(args)) * any(out.requires_grad for out in got)
    for number, (ours, theirs, truth) in enumerate(zip(got, eager, exact, strict=True)):
        if theirs is None:
            assert ours is None or not ours.any()
            continue
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        assert number >= outputs or ours.stride() == theirs.stride()
        if not ours.is_floating_point():
            assert torch.equal(ours, theirs)
            continue
        finite = truth[truth.isfinite()].abs()
        unit = torch.finfo(ours.dtype).eps * (1 + (finite.max() if finite.numel() else 0))
        allowed = 2 * (theirs.double() - truth).abs().nan_to_num() + 16 * unit
        near = ((ours.double() - truth).abs() <= allowed) | (ours.double() == truth) | (ours.isnan() & theirs.isnan())
        assert near.all()
    if fused:
        traces = compiled.last_traces + compiled.last_backward_traces
        assert compiled.fallbacks == [] and any(trace.fusions for trace in traces)
    return compiled


CASES = {
    "pointwise with broadcasting": (lambda x, y: (x * y + 1).tanh() * x.sigmoid(), R(3, 5), R(5)),
    "transposed": (lambda x: (x.t() + 1).sin().t() * 2, R(3, 5)),
    "channels last": (lambda x: x.exp() * 2 + 1, R(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "softmax": (lambda x: F.softmax(x * 2, -1) * 3, R(6, 10)),
    "softmax over the first dimension": (lambda x: F.softmax(x * 2, 0) * x, R(6, 5)),
    "log softmax of a view": (lambda x: F.log_softmax(x.view(2, 3, 10) + 1, -1), R(6, 10)),
    "layer norm between": (lambda x, w, b: F.layer_norm(F.gelu(x), (16,), w, b) + x, R(2, 3, 16), R(16), R(16)),
    "rms norm": (lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w, R(2, 3, 16), R(16)),
    "bias gradient": (lambda x, b: (F.silu(x + b) * x).sum((0, 1)), R(2, 3, 16), R(16)),
    "rotary": (lambda x, c: x * c + torch.cat([-x[..., 8:], x[..., :8]], -1) * c.sin(), R(2, 3, 16), R(3, 16)),
    "swiglu": (lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], R(4, 6)),
    "full reduction": (lambda x: (x * x).sum().sqrt(), R(7, 9)),
    "two reductions": (lambda x: ((x * 2).sum(0) + 1, (x * x).sum(1) + 1), R(5, 7)),
    "loss": (lambda x, y: F.mse_loss(x.tanh(), y), R(4, 5), R(4, 5)),
    "around a product": (lambda x, w: F.gelu((x + 1).exp() @ w) * 2 + 1, R(4, 5), R(5, 6)),
    "padding": (lambda x: F.pad(x * 2, (1, 2, 0, 1)).exp() + 1, R(4, 5)),
    "select": (lambda x: x[1] * 2 + x[:, 0].sum(), R(4, 4)),
    "concatenation": (lambda x, y: torch.cat([x, y.sin(), x], 1) * 2, R(4, 3), R(4, 5)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) * x.relu() + F.leaky_relu(x), R(4, 3)),
    "attention scores": (
        lambda x: F.softmax(x + x.mean(-1, keepdim=True), -1).transpose(1, 2).contiguous() * 2,
        R(2, 3, 4, 8),
    ),
    "where and comparisons": (lambda x, y: torch.where(x > y, x * 2, y) * (x != 0), R(4, 5), R(5)),
    "integers": (lambda x: (x * 2 + 1 > 5) & (x < 9), torch.arange(12)),
    "bfloat16": (lambda x, y: F.layer_norm(x + y, (16,)).sigmoid(), R(4, 16).bfloat16(), R(4, 16).bfloat16()),
    "float16": (lambda x, y: F.softmax(x * y, -1) + x, R(4, 16).half(), R(16).half()),
    "float64": (lambda x: (x.exp() * 2).sum(-1) + 1, R(4, 16).double()),
    "size 1": (lambda x: (x + 1).exp() * 2, R(1)),
    "size 0": (lambda x: (x + 1).exp() * 2, R(0, 3)),
    "scalar": (lambda x: (x + 1).exp() * 2, R(())),
    "odd sizes": (lambda x: (x + 1).exp().relu() * 2, R(13, 1, 7)),
    "more than a block": (lambda x: (x + 1).sigmoid() * x, R(3, 1031)),
    "expanded input": (lambda x, y: (x + y).exp() * 2, R(4, 1).expand(4, 6), R(4, 6)),
    "maximum with nan": (
        lambda x: (x + 0).amax(-1) * 2 + (x * 1).amin(-1),
        torch.tensor([[1.0, float("nan"), 3.0], [4.0, 5.0, 6.0], [float("inf"), 0.0, 1.0]]),
    ),
    "tanh near zero": (lambda x: torch.tanh(x * 1e-3) * 1e3 + torch.tanh(x * 100), R(4, 50)),
    "cross entropy": (
        lambda x, t: F.cross_entropy(x * 2, t, ignore_index=3, label_smoothing=0.1),
        R(7, 11),
        torch.tensor([0, 3, 10, 5, 3, 1, 2]),
    ),
    "embedding": (lambda x, t: (F.embedding(t, x) * 2).exp() + 1, R(7, 5), torch.tensor([[0, 6], [3, 3]])),
    "indexing": (lambda x, i: x[:, i] * 2 + x[i, :1] + 1, R(5, 5), torch.tensor([0, -1, 2, 2, 4])),
    "gather": (lambda x, i: (x * 2).gather(1, i) + 1, R(3, 5), torch.tensor([[0, 4], [1, 1], [2, 0]])),
    "positions of extremes": (lambda x: (x * 2).argmax(-1) + (x + 1).argmin(0, keepdim=True), R(6, 6)),
    "truth of all and any": (lambda x: (x > 0).any(-1) & (x > -3).all(0), R(4, 4)),
    "group norm": (lambda x, w, b: F.group_norm(x * 2, 2, w, b).relu(), R(3, 4, 5), R(4), R(4)),
    "batch norm": (lambda x, w, b: F.batch_norm(x * 2, None, None, w, b, True).relu(), R(6, 4, 5), R(4), R(4)),
    "logsumexp": (lambda x: (x * 3).logsumexp(-1) + 1, R(4, 9)),
    "long rows": (lambda x: F.softmax(x * 2, -1) * x, R(2, 16391)),
    "long rows of many": (lambda x: (x * x).sum(0) + x.exp().amax(0), R(1031, 5)),
    "a long reduction in parts": (lambda x: ((x * 2).sum((0, 1)) + 1, x.exp().mean()), R(64, 48, 3)),
    "a slice with a step is written": (lambda x, y: torch.slice_scatter(x * 2, y, 0, 1, 8, 2) + 1, R(8, 3), R(4, 3)),
    "flipped and repeated": (lambda x: x.flip(0).repeat(2, 3) * 2 + 1, R(3, 4)),
    "rounding": (
        lambda x, y: torch.round(x * 3) + torch.floor(x / y) + torch.div(x, y, rounding_mode="trunc") + x % y.abs(),
        R(5, 4),
        R(5, 4) + 3,
    ),
    "small arguments": (lambda x: torch.log1p(x * 1e-5) + torch.expm1(x * 1e-5), R(5, 4).abs()),
    "constants of float64": (lambda x: x.double() * 0.1 + 1 / 3, R(5, 4)),
    "a deep chain": (lambda x: deep(x), R(5, 4)),
    "power and division": (lambda x: (x**2 + x**3) / (x * x + 1) - 1 / (x.abs() + 1), R(4, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_like_eager(name):
    fn, *args = CASES[name]
    check(fn, *args)


def test_what_a_layer_norm_with_neighbours_costs_is_one_kernel():
    compiled = check(*CASES["layer norm between"])
    (record,) = compiled.last_traces[0].fusions
    assert record.statistics["kernels"] == 1
    # three loads (x, weight, bias), three stores (mean, rstd, result); gelu is computed again in the backward
    assert record.statistics["bytes"] == 4 * (2 * 96 + 2 * 16 + 2 * 6)
    assert "[m * 16 + n] = v" in record.source and re.search(r"sum of v\d+ over columns", record.source)
    assert "def kernel0(in0" in record.source


def test_softmax_reads_and_writes_once():
    compiled = check(lambda x: F.softmax(x * 2 + 1, -1), R(6, 10))
    assert compiled.last_traces[0].fusions[0].statistics == {"kernels": 1, "bytes": 4 * 2 * 60}


def test_what_it_cannot_do_stays_outside_with_a_reason():
    compiled = check(lambda x: torch.cumsum(x + 1, 0) * 2 + 1, R(5, 3))
    (line,) = [line for line in compiled.last_traces[0].bound_symbols if "cumsum" in line.symbol]
    assert line.why == "triton: no kernel is generated for aten.cumsum.default"


def test_symbolic_sizes_are_arguments_of_one_kernel():
    """Rows, columns and strides of other sizes run the same kernels, compiled once."""

    def fn(x, w):
        return F.softmax(F.layer_norm(x, (x.shape[-1],), w) * x.shape[0] + x[:, :1], -1).sum(0) * 2

    torch._dynamo.reset()
    compiled = thunderfx(fn, executors=["triton"], dynamic=True)
    for shape in [(3, 5), (7, 11), (20, 33), (3, 300)]:
        args = R(shape), R(shape[1])
        got, expected = outcome(compiled, leaves(args)), outcome(fn, leaves(args, torch.float64))
        for ours, truth in zip(got, expected, strict=True):
            torch.testing.assert_close(ours.double(), truth, rtol=2e-5, atol=2e-5)
    assert compiled.fallbacks == [] and len(compiled.last_traces) == 1
    (record,) = compiled.last_traces[0].fusions
    assert re.search(r"def kernel0\(.*, s\d+, s\d+, WIDE", record.source)


def test_dropout_draws_its_mask_again():
    torch._dynamo.reset()
    compiled = thunderfx(lambda x: F.dropout(x * 2, 0.3) * 3, executors=["triton"])
    x = torch.ones(200, 500, requires_grad=True)
    torch.manual_seed(1)
    y = compiled(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach())  # the same elements, scaled alike
    assert abs((y != 0).float().mean() - 0.7) < 0.01
    torch.manual_seed(1)
    assert torch.equal(compiled(x), y)
    assert not torch.equal(compiled(x), y)
    saved = compiled.subgraph_infos[0].saved_for_backward_bytes
    assert saved <= 8  # the seed


def test_philox_of_torch_is_tritons():
    import triton
    import triton.language as tl
    from thunderfx.executors.triton.philox import uniform

    @triton.jit
    def draw(seed, out, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(out + at, tl.rand(tl.load(seed), at))

    seed = torch.tensor(0x1234567890ABCDE)
    out = torch.empty(1024)
    draw[(1,)](seed, out, BLOCK=1024)
    assert torch.equal(uniform(seed, [1024]), out)


UNARY = {
    "neg": torch.neg,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "exp": lambda x: torch.exp(-x.abs()),
    "gelu": F.gelu,
    "relu": F.relu,
    "softmax": lambda x: F.softmax(x, -1),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "sum": lambda x: x.sum(0, keepdim=True) / 4,
    "transposed": lambda x: x.transpose(0, 1).sin().transpose(0, 1),
    "reshaped": lambda x: x.reshape(-1).cos().reshape(x.shape),
    "sliced": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
}
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "maximum": torch.maximum}


def trees(depth):
    leaf = st.sampled_from(["x", "y", "row", "column"])
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(sorted(UNARY)), inner), st.tuples(st.sampled_from(sorted(BINARY)), inner, inner)
        ),
        max_leaves=depth,
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(6), trees(3), st.sampled_from([(3, 4), (5, 7), (1, 6), (6, 1)]))
def test_expression_trees(tree, other, shape):
    torch.manual_seed(0)
    full = torch.zeros(shape)

    def fn(x, y, row, column):
        values = {"x": x, "y": y, "row": row, "column": column}

        def evaluate(node):
            if isinstance(node, str):
                return values[node].expand(shape) if node in ("row", "column") else values[node]
            if len(node) == 2:
                return UNARY[node[0]](evaluate(node[1]).expand(shape))
            return BINARY[node[0]](evaluate(node[1]), evaluate(node[2]))

        return (evaluate(tree) + full) * 0.5 + evaluate(other)

    check(fn, R(shape), R(shape), R(shape[1]), R(shape[0], 1), fused=False)


def test_kernels_of_the_samples_compile_to_machine_code():
    """In a process of its own, where triton compiles: every kernel of the sample models for sm_80, sm_90 and sm_100."""
    script = Path(__file__).parents[1] / "triton_aot.py"
    env = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=env, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [
        line.split() for line in done.stdout.splitlines() if line.startswith(("llama", "nanogpt", "convnet", "vit"))
    ]
    assert [row[0] for row in rows] == ["llama", "nanogpt", "convnet", "vit"]
    for row in rows:
        kernels, spills = int(row[2]), int(row[-1])
        assert kernels >= 5 and spills == 0
