"""What our own stages cost per trace line, for models of 8, 32 and 128 layers: they should be linear.

    python tests/benchmarks/bench_compile.py [--layers 8,32,128] [--repeats 3]

Each size is compiled ``--repeats`` times, sizes in turn, forward and backward; the best of each stage counts, since
everything else on the machine can only add. Times are microseconds per line of the lowered forward and backward traces;
``lowering`` is the FX graph to the first trace, ``codegen`` the text to the callable, ``printing`` the final traces as
a person reads them. Lowering excludes Dynamo and AOTAutograd; what they take is printed beside our share.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from bench_host import Block
from thunderfx import thunderfx
from torch import nn

SPREAD_TARGET = 1.3  #: dearest size to cheapest, of the time per line
DIRECTIONS = ("forward", "backward")


class Deep(nn.Module):
    """Llama layers one after the other."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.register_buffer("cos", torch.ones(8, 16))
        self.register_buffer("sin", torch.ones(8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x


def once(layers: int) -> tuple[int, dict[str, float]]:
    """Lines of both lowered traces, and milliseconds of each of our stages; ``whole`` is the first call."""
    torch._dynamo.reset()
    compiled = thunderfx(Deep(layers))
    start = time.perf_counter_ns()
    compiled(torch.randn(1, 8, 64)).sum().backward()
    times = {"whole": (time.perf_counter_ns() - start) / 1e6}
    (info,) = compiled.subgraph_infos
    times["torch level"] = info.stages["graph"][0].time_ms
    for direction in DIRECTIONS:
        for stage in info.stages[direction]:
            name = "lowering" if stage.name == direction else stage.name
            times[name] = times.get(name, 0.0) + stage.time_ms
        times["codegen"] = times.get("codegen", 0.0) + info.codegen_ms[direction]
    start = time.perf_counter_ns()
    for trace in (info.forward, info.backward):
        str(trace)
    times["printing"] = (time.perf_counter_ns() - start) / 1e6
    return sum(len(info.stages[direction][0].trace.bound_symbols) for direction in DIRECTIONS), times


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", default="8,32,128")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    sizes = [int(text) for text in args.layers.split(",")]
    once(2)  # what torch imports on demand
    lines: dict[int, int] = {}
    best: dict[int, dict[str, float]] = {size: {} for size in sizes}
    for _ in range(args.repeats):
        for size in sizes:
            lines[size], times = once(size)
            best[size] = {name: min(ms, best[size].get(name, ms)) for name, ms in times.items()}
    print("microseconds per trace line" + "".join(f"{f'{size} layers':>14}" for size in sizes) + f"{'spread':>10}")
    print(f"{'lines':27}" + "".join(f"{lines[size]:>14}" for size in sizes))
    ours = [name for name in best[sizes[0]] if name != "whole"]
    for size in sizes:
        best[size]["ours"] = sum(best[size][name] for name in ours)
    per_line = {name: [best[size][name] * 1e3 / lines[size] for size in sizes] for name in (*ours, "ours", "whole")}
    for name, row in per_line.items():
        print(f"{name:27}" + "".join(f"{value:>14.1f}" for value in row) + f"{max(row) / min(row):>10.2f}")
    shares = [best[size]["ours"] / best[size]["whole"] for size in sizes]
    print(f"{'ours / whole first call':27}" + "".join(f"{share:>14.1%}" for share in shares))
    spread = max(per_line["ours"]) / min(per_line["ours"])
    print(f"\ntime per line over sizes: spread {spread:.2f} (target {SPREAD_TARGET})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
