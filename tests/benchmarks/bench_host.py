"""Host overhead: training steps and first calls of small models, where the host is what takes the time.

    python tests/benchmarks/bench_host.py [--models tiny8,chain] [--rounds 300] [--budget 20] [--no-inductor]

In one process, interleaved round by round in changing order: eager, aot_eager, inductor, and thunderfx with the torch
and with the inductor executor. Ratios are of medians to eager's, with the quartiles of the ratios round by round. First
calls are of this process with everything imported (``bench_step.py`` takes them in fresh processes). The second table
times a call of a compiled function that does next to nothing, without and with a gradient: what each backend adds to
every call. Nothing here fails for being slow; the last lines name the ratios beside their targets.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from bench_step import ratio
from thunderfx import thunderfx
from torch import nn

BACKENDS = ("eager", "aot_eager", "inductor", "thunderfx", "ours inductor")
MEDIAN_TARGET, WORST_TARGET = 1.00, 1.05  #: thunderfx to eager, over the models
INDUCTOR_TARGET = 1.03
Build = Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]


def wide() -> Any:
    """MLP of four layers, 256 to 1024 wide."""
    sizes = (256, 512, 1024, 512, 256)
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers), (torch.randn(64, 256),)


def tiny8() -> Any:
    """MLP of eight layers of 16: next to no work but the host's."""
    return nn.Sequential(*[part for _ in range(8) for part in (nn.Linear(16, 16), nn.ReLU())]), (torch.randn(4, 16),)


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale
        for _ in range(6):
            x = torch.tanh(x) * 0.5 + torch.sigmoid(x)
        return x


def chain() -> Any:
    """Pointwise operators one after the other."""
    return Chain(), (torch.randn(128, 64),)


def convnet() -> Any:
    """Convolutions with BatchNorm."""
    blocks = [(3, 16), (16, 16), (16, 32)]
    layers = [p for a, b in blocks for p in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), (
        torch.randn(4, 3, 16, 16),
    )


class Block(nn.Module):
    """A Llama layer: RMSNorm, attention with rotary embedding, SwiGLU."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-b, a), dim=-1) * sin

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(128, 64)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(64, 128, bias=False)
        angles = torch.outer(torch.arange(32), 10000 ** (-torch.arange(0, 16, 2) / 16)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(x)


def llama() -> Any:
    """Four Llama layers of width 64."""
    return Llama(), (torch.randint(0, 128, (2, 32)),)


MODELS: dict[str, Build] = {f.__name__: f for f in (wide, tiny8, llama, convnet, chain)}


def compiled(fn: Any, backend: str) -> Any:
    if backend == "eager":
        return fn
    if backend == "ours inductor":
        return thunderfx(fn, executors=["inductor"])
    return thunderfx(fn) if backend == "thunderfx" else torch.compile(fn, backend=backend)


def step_ms(model: nn.Module, fn: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...]) -> float:
    model.zero_grad()
    start = time.perf_counter_ns()
    fn(*args).sum().backward()
    return (time.perf_counter_ns() - start) / 1e6


def interleaved(
    calls: dict[str, Callable[[], float]], rounds: int, budget_s: float, warm_up: int = 20
) -> dict[str, list[float]]:
    """Samples of each call, taken in rounds of changing order until ``rounds`` or ``budget_s`` are used up."""
    for call in calls.values():
        for _ in range(warm_up):
            call()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    orders = itertools.cycle(itertools.permutations(calls))
    deadline = time.monotonic() + budget_s
    for number in range(rounds):
        if number >= 8 and time.monotonic() > deadline:
            break
        for name in next(orders):
            samples[name].append(calls[name]())
    return samples


def measure(build: Build, backends: tuple[str, ...], rounds: int, budget_s: float) -> tuple[Any, dict[str, float]]:
    calls: dict[str, Callable[[], float]] = {}
    first: dict[str, float] = {}
    for backend in backends:
        torch.manual_seed(0)
        model, args = build()
        fn = compiled(model, backend)
        first[backend] = step_ms(model, fn, args)
        if backend == "thunderfx" and fn.fallbacks:
            raise SystemExit(f"{build.__name__}: thunderfx fell back: {fn.fallbacks}")
        calls[backend] = lambda model=model, fn=fn, args=args: step_ms(model, fn, args)  # type: ignore[misc]
    return interleaved(calls, rounds, budget_s), first


def call_times(backends: tuple[str, ...], rounds: int, with_gradient: bool) -> dict[str, list[float]]:
    """Microseconds of one call of a function of one operator."""
    x = torch.ones(1, requires_grad=with_gradient)
    calls: dict[str, Callable[[], float]] = {}
    for backend in backends:
        fn = compiled(lambda x: x + 1, backend)
        for _ in range(3):
            y = fn(x)
            if with_gradient:
                y.backward()

        def timed(fn: Any = fn) -> float:
            start = time.perf_counter_ns()
            for _ in range(10):
                fn(x)
            return (time.perf_counter_ns() - start) / 1e4

        calls[backend] = timed
    return interleaved(calls, rounds, 30)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of steps for each model")
    parser.add_argument("--no-inductor", action="store_true", help="leave out inductor, which needs a C++ compiler")
    args = parser.parse_args()
    backends = tuple(name for name in BACKENDS if "inductor" not in name or not args.no_inductor)
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores, {torch.get_num_threads()} threads")
    print("step / eager (25th-75th percentile); first call / aot_eager's")
    print(f"{'model':10}{'eager ms':>10}" + "".join(f"{name:>22}" for name in backends[1:]) + f"{'first call':>12}")
    ratios, to_inductor = {}, {}
    for name in args.models.split(","):
        torch._dynamo.reset()
        samples, first = measure(MODELS[name], backends, args.rounds, args.budget)
        found = {backend: ratio(samples[backend], samples["eager"]) for backend in backends[1:]}
        ratios[name] = found["thunderfx"][0]
        if "inductor" in backends:
            to_inductor[name] = ratio(samples["ours inductor"], samples["inductor"])[0]
        cells = "".join(f"{f'{mid:.3f} ({low:.3f}-{high:.3f})':>22}" for mid, low, high in found.values())
        eager = statistics.median(samples["eager"])
        print(f"{name:10}{eager:>10.3f}{cells}{first['thunderfx'] / first['aot_eager']:>12.2f}", flush=True)
    print("\nmicroseconds of one call of x + 1, median")
    print(f"{'':16}" + "".join(f"{name:>12}" for name in backends))
    for label, with_gradient in (("no gradient", False), ("gradient", True)):
        torch._dynamo.reset()
        times = call_times(backends, args.rounds, with_gradient)
        print(f"{label:16}" + "".join(f"{statistics.median(times[name]):>12.1f}" for name in backends))
    median, worst = statistics.median(ratios.values()), max(ratios, key=ratios.__getitem__)
    print(f"\nthunderfx / eager: median {median:.3f} (target {MEDIAN_TARGET:.2f}),", end=" ")
    print(f"worst {worst} {ratios[worst]:.3f} (target {WORST_TARGET:.2f})")
    if to_inductor:
        worst = max(to_inductor, key=to_inductor.__getitem__)
        print(
            f"inductor executor / torch.compile: worst {worst} {to_inductor[worst]:.3f} (target {INDUCTOR_TARGET:.2f})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
