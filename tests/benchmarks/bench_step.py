"""First call against aot_eager and training step against eager, on every sample model.

    python tests/benchmarks/bench_step.py [--models mlp,llama] [--rounds 60] [--first-calls 5]

First calls (forward and backward) are taken in fresh processes, the backends in turn. Steps are interleaved in one
process, one step of each backend per round, in an order that changes. Ratios of medians are printed, with the 25th
and 75th percentile of the per-round ratios: these machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
MODELS = ("mlp", "convnet", "nanogpt", "llama", "vit", "graph_break")
FIRST_CALL_TARGET = 1.15
STEP_TARGET = 1.10


def load(name: str) -> Any:
    from thunderfx_cli.loading.model import load_model
    from thunderfx_cli.loading.target import parse_target

    return load_model(parse_target(str(SAMPLES / f"{name}.py")), device="cpu", seed=0)


def compiled(loaded: Any, backend: str) -> Callable[..., Any]:
    import torch
    from thunderfx import thunderfx

    if backend == "eager":
        return loaded.callable  # type: ignore[no-any-return]
    return thunderfx(loaded.callable) if backend == "thunderfx" else torch.compile(loaded.callable, backend=backend)


def step(loaded: Any, fn: Callable[..., Any]) -> None:
    from thunderfx_cli.running.step import loss_of

    for parameter in loaded.callable.parameters():
        parameter.grad = None
    loss = loss_of(loaded, fn(*loaded.args, **loaded.kwargs))
    assert loss is not None
    loss.backward()


def first_call_ms(name: str, backend: str) -> float:
    """In this process, which must be fresh: what both backends import is imported before the clock starts."""
    import thunderfx.dynamo  # noqa: F401

    loaded = load(name)
    step(loaded, loaded.callable)
    fn = compiled(loaded, backend)
    start = time.perf_counter_ns()
    step(loaded, fn)
    return (time.perf_counter_ns() - start) / 1e6


def first_calls(name: str, repeats: int) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {"aot_eager": [], "thunderfx": []}
    for number in range(repeats):
        for backend in sorted(samples, reverse=bool(number % 2)):
            command = [sys.executable, __file__, "--one", name, "--backend", backend]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            samples[backend].append(float(out.split()[-1]))
    return samples


def steps(name: str, rounds: int) -> dict[str, list[float]]:
    backends = ["eager", "aot_eager", "thunderfx"]
    models = {backend: load(name) for backend in backends}
    functions = {backend: compiled(models[backend], backend) for backend in backends}
    for backend in backends:
        for _ in range(5):
            step(models[backend], functions[backend])
    samples: dict[str, list[float]] = {backend: [] for backend in backends}
    for number in range(rounds):
        shift = number % len(backends)
        for backend in backends[shift:] + backends[:shift]:
            start = time.perf_counter_ns()
            step(models[backend], functions[backend])
            samples[backend].append((time.perf_counter_ns() - start) / 1e6)
    return samples


def ratio(samples: list[float], base: list[float]) -> tuple[float, float, float]:
    """Ratio of medians, and quartiles of the ratios round by round."""
    each = sorted(a / b for a, b in zip(samples, base, strict=True))
    quarter = len(each) // 4
    return statistics.median(samples) / statistics.median(base), each[quarter], each[-1 - quarter]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--first-calls", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the samples as JSON")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(first_call_ms(args.one, args.backend))
        return 0
    everything: dict[str, Any] = {}
    missed = []
    if not args.json:
        print(
            f"{'model':12} {'first call / aot_eager':>24} {'step aot_eager / eager':>26} {'step thunderfx / eager':>26}"
        )
    for name in args.models.split(","):
        calls, timed = first_calls(name, args.first_calls), steps(name, args.rounds)
        everything[name] = {"first_call_ms": calls, "step_ms": timed}
        first = ratio(calls["thunderfx"], calls["aot_eager"])
        aot, ours = (ratio(timed[backend], timed["eager"]) for backend in ("aot_eager", "thunderfx"))
        if not args.json:
            cells = [f"{r[0]:.3f} ({r[1]:.3f}-{r[2]:.3f})" for r in (first, aot, ours)]
            print(f"{name:12} {cells[0]:>24} {cells[1]:>26} {cells[2]:>26}", flush=True)
        missed += [f"{name} first call {first[0]:.3f}"] * (first[0] > FIRST_CALL_TARGET)
        missed += [f"{name} step {ours[0]:.3f}"] * (ours[0] > STEP_TARGET)
    if args.json:
        print(json.dumps(everything))
    else:
        print(f"targets: first call {FIRST_CALL_TARGET}, step {STEP_TARGET}; above: {', '.join(missed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
