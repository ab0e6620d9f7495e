"""Whatever a model does, compiled and eager show the same: values, gradients, mutations and random state."""

from __future__ import annotations

import copy
import gc
import threading

import psutil
import pytest
import torch
import torch.nn.functional as F
from observe import assert_like_eager
from thunderfx import thunderfx
from torch import nn
from torch.utils.checkpoint import checkpoint


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


class Doubled(torch.autograd.Function):
    """A product with a gradient that is not its own, so that it shows who differentiates."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b * 2, grad * a * 3


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.mark_dirty(a)
        return a.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.linear(x)
        return y.float()


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5))
        self.outer = nn.Linear(8, 8)
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return self.outer(checkpoint(self.inner, x, use_reentrant=self.use_reentrant))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.embedding(ids))


class RebindsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean.copy_(x.detach().mean(0))
        self.mean = self.mean * 0.5
        return x * self.weight + self.mean


def hooked():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    model[0].weight.register_hook(lambda grad: grad * 3)
    return model, (leaf(2, 4),)


def frozen():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    return model, (torch.randn(2, 4),)


def grad_regions(x):
    with torch.no_grad():
        a = x * 2
    with torch.set_grad_enabled(True):
        b = x * 3
    with torch.inference_mode():
        c = x * 4
    return a, b, c + 0


def write_items(x, index):
    y = x.clone()
    y[index] = 0
    y[..., 0] += 1
    return y


def random_numbers(x):
    return (
        x + torch.rand(3),
        x + torch.rand(3),
        F.dropout(x, 0.5),
        F.dropout(x, 0.5),
        torch.bernoulli(torch.sigmoid(x.detach())),
        torch.randperm(5),
    )


def many_dtypes(a, b, c, d, e):
    return a + 1, ~b, c * 1j, d.sin(), e.float() * 2


def write_through_view(x):
    x[1:].mul_(2)
    return x.sum()


def aliases_of_an_intermediate(x):
    y = x * 2
    return y.view(-1), y.t(), y


def twice(x):
    return x, x


def losses(x, y):
    p = torch.sigmoid(x)
    return (
        F.mse_loss(x, y),
        F.smooth_l1_loss(x, y),
        F.huber_loss(x, y),
        F.binary_cross_entropy(p, p.detach()),
        F.l1_loss(x, y),
    )


MODELS = {
    "everything dropped": lambda: (lambda x: F.dropout(x, 1.0) + F.dropout(x * 2, 0.5), (leaf(3, 4),)),
    "losses of the mean": lambda: (losses, (leaf(3, 4), torch.randn(3, 4))),
    "autocast inside": lambda: (Autocast(), (leaf(4, 8),)),
    "checkpoint, reentrant": lambda: (Checkpointed(True), (leaf(4, 8),)),
    "checkpoint": lambda: (Checkpointed(False), (leaf(4, 8),)),
    "autograd function, same tensor twice": lambda: (lambda x: Doubled.apply(x, x), (leaf(4),)),
    "autograd function, in place": lambda: (lambda x: InPlace.apply(x.clone()), (leaf(4),)),
    "hooks": hooked,
    "vmap": lambda: (lambda x: torch.func.vmap(lambda a: a.sin().sum())(x), (leaf(4, 3),)),
    "grad": lambda: (lambda x: torch.func.grad(lambda a: (a**3).sum())(x), (leaf(4),)),
    "sizes from data": lambda: (lambda x: (x.nonzero(), x[x > 0], torch.unique(x), x.sum().item()), (torch.randn(5),)),
    "sparse": lambda: (lambda x: torch.sparse.mm(x.to_sparse(), x).sum(), (leaf(4, 4),)),
    "lstm": lambda: (nn.LSTM(4, 5, 2, batch_first=True), (leaf(2, 3, 4),)),
    "gru": lambda: (nn.GRU(4, 5, bidirectional=True), (leaf(3, 2, 4),)),
    "attention": lambda: (nn.MultiheadAttention(8, 2), (leaf(3, 2, 8), leaf(3, 2, 8), leaf(3, 2, 8))),
    "transformer": lambda: (nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (leaf(2, 3, 8), leaf(2, 3, 8))),
    "encoder in eval": lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (torch.randn(2, 3, 8),)),
    "embedding bag": lambda: (nn.EmbeddingBag(10, 4), (torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2]))),
    "write through a view of an input": lambda: (write_through_view, (torch.randn(4),)),
    "outputs alias an input": lambda: (lambda x: (x.view(-1), x.t(), x), (leaf(2, 3),)),
    "outputs alias each other": lambda: (aliases_of_an_intermediate, (leaf(2, 3),)),
    "same tensor passed twice": lambda: (lambda a, b: a * b + a, twice(leaf(3))),
    "channels last": lambda: (
        nn.Conv2d(3, 4, 3),
        (torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_(),),
    ),
    "zero size and zero dim": lambda: (
        lambda x, y: (x.sum(0), x * 2, y.exp()),
        (leaf(0, 3), torch.tensor(2.0, requires_grad=True)),
    ),
    "dtypes": lambda: (
        many_dtypes,
        (
            torch.arange(4),
            torch.tensor([True, False]),
            torch.randn(3, dtype=torch.complex64, requires_grad=True),
            torch.randn(3, dtype=torch.float64, requires_grad=True),
            torch.randn(4).to(torch.float8_e4m3fn),
        ),
    ),
    "grad mode regions": lambda: (grad_regions, (leaf(3),)),
    "frozen parameters": frozen,
    "tied weights": lambda: (Tied(), (torch.tensor([1, 2]),)),
    "item assignment": lambda: (write_items, (leaf(3, 3), torch.tensor([1]))),
    "out argument": lambda: (lambda x, out: torch.add(x, 1, out=out) * 2, (torch.randn(3), torch.zeros(3))),
    "integers": lambda: (lambda a: (a // 3, a % 3, a >> 1, a.float().mean()), (torch.arange(10, dtype=torch.uint8),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_like_eager(name):
    assert_like_eager(MODELS[name], calls=3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)), (leaf(2, 3, 6, 6),)),
        lambda: (RebindsBuffer(), (leaf(2, 3),)),
        lambda: (random_numbers, (leaf(3),)),
    ],
    ids=["batch norm", "rebound buffer", "random numbers"],
)
def test_several_calls(make):
    assert_like_eager(make, calls=3)


def test_autocast_around_the_call():
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    compiled = thunderfx(model)
    with torch.autocast("cpu", torch.bfloat16):
        want, got = model(x), compiled(x)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want)


class FullPrecisionInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        y = self.a(x).float()
        with torch.autocast("cpu", enabled=False):
            return self.b(y)


def test_autocast_around_the_call_casts_once():
    model, x = FullPrecisionInside(), leaf(4, 8)
    compiled = thunderfx(model)
    with torch.autocast("cpu", torch.bfloat16):
        want = model(x)
        for _ in range(3):
            got = compiled(x)
            got.sum().backward()
    assert got.dtype == want.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


def test_function_transforms_around_the_call():
    fn, x = (lambda x: x.sin() * 2), torch.randn(4, 3)
    torch.testing.assert_close(torch.func.vmap(thunderfx(fn))(x), fn(x))
    torch.testing.assert_close(torch.func.jvp(thunderfx(fn), (x,), (x,)), torch.func.jvp(fn, (x,), (x,)))


def test_loops_and_branches_are_nested_traces():
    from torch._higher_order_ops.while_loop import while_loop

    def doubled(x):
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))[1]

    def branch(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    x = torch.rand(3)
    torch.testing.assert_close(thunderfx(doubled)(x), x * 8)
    compiled = thunderfx(branch)
    torch.testing.assert_close(compiled(x), x.sin())
    torch.testing.assert_close(compiled(-x), (-x).cos())
    assert str(compiled.last_traces[0]).count("    def ") == 0
    assert str(compiled.last_traces[0]).count("  def ") == 2


def test_attention_and_map_have_nested_traces():
    from torch._higher_order_ops.map import map as map_over
    from torch.nn.attention.flex_attention import flex_attention

    def attend(q):
        return flex_attention(q, q, q, score_mod=lambda score, batch, head, i, j: score + i - j)

    def scaled_sine(x, y):
        return map_over(lambda row, y: row.sin() * y, x, y)

    q, x, y = torch.randn(1, 2, 16, 16), torch.randn(3, 4), torch.randn(4)
    compiled = thunderfx(attend)
    torch.testing.assert_close(compiled(q), attend(q))
    assert "    sub = aten.sub.Tensor(add, arg4_1)" in compiled.last_traces[0].python()
    compiled = thunderfx(scaled_sine)
    torch.testing.assert_close(compiled(x, y), x.sin() * y)
    assert "    sin = aten.sin.default(arg0_1)" in compiled.last_traces[0].python()
    assert compiled.fallbacks == []


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputed_lines_are_tagged(use_reentrant):
    compiled = thunderfx(Checkpointed(use_reentrant))
    compiled(leaf(4, 8)).sum().backward()
    (trace,) = compiled.last_backward_traces
    recomputed = {
        (line.symbol, trace.origin_of(line).module) for line in trace.bound_symbols if line.has_tag("recomputed")
    }
    assert {module for _, module in recomputed} <= {"inner.0", "inner.1", "inner.2"}
    assert ("aten.addmm.default", "inner.0") in recomputed
    assert not any(line.has_tag("recomputed") for line in compiled.last_traces[0].bound_symbols)


def test_subgraphs_are_bounded_by_dynamos_limit():
    class Holder:
        pass

    def scaled(x, holder):
        return x * len(holder.items)

    compiled, x, holder = thunderfx(scaled), torch.randn(2), Holder()
    limit = torch._dynamo.config.recompile_limit
    for count in range(1, limit + 4):
        holder.items = (None,) * count
        torch.testing.assert_close(compiled(x, holder), x * count)
    assert len(compiled.subgraph_infos) == limit
    assert compiled.subgraph_infos[1].replaces == 0
    assert "len(holder.items) == 1" in compiled.subgraph_infos[1].recompile_reason


def test_streams_are_used_where_there_is_a_device():
    def fn(x):
        if torch.cuda.is_available():
            with torch.cuda.stream(torch.cuda.Stream()):
                y = x * 2
            torch.cuda.synchronize()
            return y
        return x * 2

    torch.testing.assert_close(thunderfx(fn)(torch.ones(3)), torch.full((3,), 2.0))


def test_custom_operators():
    @torch.library.custom_op("thunderfx_tests::sine", mutates_args=())
    def sine(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()

    sine.register_fake(torch.empty_like)
    sine.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))

    @torch.library.custom_op("thunderfx_tests::add_to", mutates_args=("x",))
    def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
        x.add_(y)

    add_to.register_fake(lambda x, y: None)

    def mutate(x, y):
        z = x.clone()
        add_to(z, y)
        add_to(x, y)
        return z * 2

    assert_like_eager(lambda: (lambda x: sine(x) * 2, (leaf(3),)))
    assert_like_eager(lambda: (mutate, (torch.randn(3), torch.randn(3))))


def test_nested_tensor():
    jagged = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)

    def fn(x):
        return (x * 2).sin()

    for want, got in zip(fn(jagged).unbind(), thunderfx(fn)(jagged).unbind(), strict=True):
        torch.testing.assert_close(got, want)


def test_outputs_that_are_no_tensors():
    out = thunderfx(lambda x: {"a": x * 2, "b": [None, 3, 1.5, "s", (x.shape,)]})(torch.randn(2))
    assert out["b"] == [None, 3, 1.5, "s", (torch.Size([2]),)]


def test_second_backward():
    model = nn.Linear(3, 3)
    loss = thunderfx(model)(torch.randn(2, 3)).sum()
    loss.backward(retain_graph=True)
    first = model.weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(model.weight.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_five_batch_sizes_make_two_subgraphs():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    reference, compiled = copy.deepcopy(model), thunderfx(model)
    for batch in (2, 3, 5, 7, 9):
        x = torch.randn(batch, 4)
        want, got = reference(x), compiled(x)
        torch.testing.assert_close(got, want)
        got.sum().backward()
    assert len(compiled.subgraph_infos) == 2
    assert compiled.subgraph_infos[1].replaces == 0
    assert "f32[s" in str(compiled.last_traces[1])


def test_threads():
    model, errors = nn.Linear(3, 3), []
    compiled = thunderfx(model)
    compiled(torch.randn(2, 3))

    def work():
        try:
            for _ in range(20):
                x = torch.randn(2, 3)
                torch.testing.assert_close(compiled(x), model(x))
        except Exception as e:
            errors.append(e)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []


def test_memory_does_not_grow_over_a_thousand_calls():
    model, x = nn.Linear(64, 64), torch.randn(8, 64)
    compiled = thunderfx(model)
    for _ in range(100):
        compiled(x).sum().backward()
    gc.collect()
    before = psutil.Process().memory_info().rss
    for _ in range(1000):
        compiled(x).sum().backward()
    gc.collect()
    assert psutil.Process().memory_info().rss - before < 20 << 20
