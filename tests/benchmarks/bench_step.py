"""First call against aot_eager and training step against eager, on every model in sample_models.

    python tests/benchmarks/bench_step.py [--models mlp,llama] [--rounds 60] [--first-calls 5] [--budget 60] [--json]

First calls (forward and backward) are taken in fresh processes, the backends in turn. Much of a first call is imports
that torch does on demand and that both backends share, which draws its ratio towards 1: so each process then compiles
once more, with everything imported, and that ratio is printed beside it. It has no target. What importing thunderfx
itself takes is in neither.

Steps are interleaved in one process, one step of each backend per round, in an order that changes, with gradients
cleared before the clock starts. All ratios are of medians, with the 25th and 75th percentile of the per-round ratios:
these machines are noisy. Nothing here fails for being slow; the last line says which ratios exceed their target.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
BACKENDS = ("eager", "aot_eager", "thunderfx")
FIRST_CALL_TARGET = 1.05
STEP_TARGET = 1.10
WARM_UP = 5  #: steps of each backend before any is timed
Samples = dict[str, list[float]]  #: milliseconds by backend; entries with the same index are of one round


def sample_names() -> list[str]:
    """The files in sample_models that define a model to load, without executing them."""
    from thunderfx_cli.loading.mode import detect_mode

    files = sorted(SAMPLES.glob("*.py"))
    return [file.stem for file in files if detect_mode(file.read_bytes(), str(file), None) == "model"]


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


def step_ms(loaded: Any, fn: Callable[..., Any]) -> float:
    """One forward, loss and backward, from cleared gradients."""
    from thunderfx_cli.running.step import backward, clear_gradients, gradient_leaves, loss_of

    clear_gradients(gradient_leaves(loaded.callable, loaded.args, loaded.kwargs))
    start = time.perf_counter_ns()
    loss = loss_of(loaded, fn(*loaded.args, **loaded.kwargs))
    if loss is None:
        raise SystemExit(f"{loaded.name}: the loss has no gradient, so there is no training step to time")
    backward(loss)
    return (time.perf_counter_ns() - start) / 1e6


def check_compiled(name: str, fn: Callable[..., Any]) -> None:
    """Stop if thunderfx left a graph to another backend, or compiled none: then the ratio would not be about it."""
    infos = getattr(fn, "subgraph_infos", None)
    if infos is not None and (not infos or fn.fallbacks):  # type: ignore[attr-defined]
        raise SystemExit(f"{name}: thunderfx compiled {len(infos)} graphs, with fallbacks: {fn.fallbacks}")  # type: ignore[attr-defined]


def first_call_ms(name: str, backend: str) -> tuple[float, float]:
    """The first call in this process, which must be fresh, and the first after compiling again.

    TorchDynamo and thunderfx are imported before the clock starts, whichever backend is measured.
    """
    import thunderfx.dynamo  # noqa: F401
    import torch

    loaded = load(name)
    step_ms(loaded, loaded.callable)
    first = compiled(loaded, backend)
    cold = step_ms(loaded, first)
    check_compiled(name, first)
    torch._dynamo.reset()
    again = compiled(loaded, backend)
    warm = step_ms(loaded, again)
    check_compiled(name, again)
    return cold, warm


def first_calls(name: str, repeats: int) -> tuple[Samples, Samples]:
    """Cold first calls and compiling again, in ``repeats`` processes of each backend, alternating which goes first."""
    cold: Samples = {"aot_eager": [], "thunderfx": []}
    warm: Samples = {"aot_eager": [], "thunderfx": []}
    for number in range(repeats):
        for backend in sorted(cold, reverse=bool(number % 2)):
            command = [sys.executable, __file__, "--one", name, "--backend", backend]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name}, first call of {backend}, exit status {done.returncode}:\n{done.stderr}")
            *_, first, again = done.stdout.split()
            cold[backend].append(float(first))
            warm[backend].append(float(again))
    return cold, warm


def steps(name: str, rounds: int, budget_s: float) -> Samples:
    """Up to ``rounds`` steps of each backend after warm-up; fewer, but at least 6, once ``budget_s`` is spent.

    Rounds go through every order of the backends, so that no backend always runs after the same other one.
    """
    models = {backend: load(name) for backend in BACKENDS}
    functions = {backend: compiled(models[backend], backend) for backend in BACKENDS}
    for backend in BACKENDS:
        for _ in range(WARM_UP):
            step_ms(models[backend], functions[backend])
    check_compiled(name, functions["thunderfx"])
    samples: Samples = {backend: [] for backend in BACKENDS}
    orders = list(itertools.permutations(BACKENDS))
    deadline = time.monotonic() + budget_s
    for number in range(rounds):
        if number >= len(orders) and time.monotonic() > deadline:
            break
        for backend in orders[number % len(orders)]:
            samples[backend].append(step_ms(models[backend], functions[backend]))
    return samples


def ratio(samples: list[float], base: list[float]) -> tuple[float, float, float]:
    """Ratio of medians, and quartiles of the ratios round by round."""
    each = sorted(a / b for a, b in zip(samples, base, strict=True))
    quarter = len(each) // 4
    return statistics.median(samples) / statistics.median(base), each[quarter], each[-1 - quarter]


def measure(name: str, first_call_repeats: int, rounds: int, budget_s: float) -> dict[str, Any]:
    """Everything about one model: the samples, and ``ratios`` of them as (ratio, 25th, 75th percentile)."""
    cold, warm = first_calls(name, first_call_repeats)
    timed = steps(name, rounds, budget_s)
    return {
        "first_call_ms": cold,
        "compile_again_ms": warm,
        "step_ms": timed,
        "ratios": {
            "first_call": ratio(cold["thunderfx"], cold["aot_eager"]),
            "compile_again": ratio(warm["thunderfx"], warm["aot_eager"]),
            "step_aot_eager": ratio(timed["aot_eager"], timed["eager"]),
            "step": ratio(timed["thunderfx"], timed["eager"]),
        },
    }


def exceeding(results: dict[str, dict[str, Any]]) -> list[str]:
    targets = {"first_call": FIRST_CALL_TARGET, "step": STEP_TARGET}
    return [
        f"{name} {what.replace('_', ' ')} {result['ratios'][what][0]:.3f}"
        for name, result in results.items()
        for what, target in targets.items()
        if result["ratios"][what][0] > target
    ]


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", help="names of sample models, separated by commas (default: all)")
    parser.add_argument("--rounds", type=at_least_one, default=60, help="steps of each backend (default 60)")
    parser.add_argument("--first-calls", type=at_least_one, default=5, help="processes for each backend (default 5)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of steps for each model (default 60)")
    parser.add_argument("--json", action="store_true", help="print samples, ratios and what exceeds as JSON")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(*first_call_ms(args.one, args.backend))
        return 0
    known = sample_names()
    names = args.models.split(",") if args.models else known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no sample model {', '.join(unknown)}; there are {', '.join(known)}")
    if not args.json:
        print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores; ratio (25th-75th percentile)")
        heads = ("first call/aot_eager", "compiled again", "step aot_eager/eager", "step thunderfx/eager")
        print(f"{'model':12}" + "".join(f"{head:>22}" for head in heads) + f"{'rounds':>8}", flush=True)
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        results[name] = measure(name, args.first_calls, args.rounds, args.budget)
        if not args.json:
            cells = [f"{mid:.3f} ({low:.3f}-{high:.3f})" for mid, low, high in results[name]["ratios"].values()]
            rounds = len(results[name]["step_ms"]["eager"])
            print(f"{name:12}" + "".join(f"{cell:>22}" for cell in cells) + f"{rounds:>8}", flush=True)
    missed = exceeding(results)
    if args.json:
        targets = {"first_call": FIRST_CALL_TARGET, "step": STEP_TARGET}
        print(json.dumps({"models": results, "targets": targets, "exceeding": missed}))
    else:
        print(f"targets: first call {FIRST_CALL_TARGET}, step {STEP_TARGET}; above: {', '.join(missed) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
