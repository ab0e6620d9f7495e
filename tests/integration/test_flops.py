"""FLOPs of traces against torch's own count of eager."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from thunderfx import thunderfx
from torch.utils.flop_counter import FlopCounterMode

from thunderfx_cli.running.line_steps import costs_of

SAMPLES = Path(__file__).parents[2] / "sample_models"


def sample(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"sample_{name}", SAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loss_of(module: Any, output: Any) -> torch.Tensor:
    return module.loss(output)


def eager_flops(module: Any, model: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[int, int]:
    with FlopCounterMode(display=False) as forward:
        loss = loss_of(module, model(*inputs))
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def trace_flops(infos: list[Any], direction: str) -> int:
    return sum(line.flops or 0 for info in infos for line in costs_of(info, {}, None)[direction].lines)


@pytest.mark.parametrize("name", ["llama", "nanogpt", "convnet"])
def test_flops_are_those_of_eager(name):
    module = sample(name)
    torch.manual_seed(0)
    model, inputs = module.model(), module.inputs()
    forward, backward = eager_flops(module, model, inputs)
    assert forward > 1e8 and backward > 1e8
    compiled = thunderfx(model)
    loss_of(module, compiled(*inputs)).backward()
    infos = compiled.subgraph_infos
    assert trace_flops(infos, "forward") == forward
    assert trace_flops(infos, "backward") == backward


def test_attention_without_a_formula_has_an_estimate_apart():
    """torch has no formula for the CPU's fused attention: it counts 0, and is estimated as the other kernels are."""
    query = torch.randn(2, 4, 8, 16, requires_grad=True)
    compiled = thunderfx(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum())
    compiled(query).backward()
    (info,) = compiled.subgraph_infos
    forward = [line for line in costs_of(info, {}, None)["forward"].lines if line.estimated_flops]
    assert [line.flops for line in forward] == [None]
    assert forward[0].estimated_flops == 2 * (2 * 2 * 4 * 8 * 8 * 16)
    backward = [line for line in costs_of(info, {}, None)["backward"].lines if line.estimated_flops]
    assert backward[0].estimated_flops == 5 * (2 * 2 * 4 * 8 * 8 * 16)


def test_symbolic_sizes_are_those_of_the_run():
    from thunderfx.profiling.line_costs import subgraph_costs
    from thunderfx.profiling.line_timer import LineTimer

    compiled = thunderfx(lambda a, b: (a @ b).sum(), dynamic=True)
    compiled(torch.randn(5, 6, requires_grad=True), torch.randn(6, 7)).backward()
    (info,) = compiled.subgraph_infos
    timer = LineTimer("cpu")
    timed = {way: timer.add(info.trace(way), info.programs[way], way) for way in ("forward", "backward")}
    with timer.marked():
        compiled(torch.randn(8, 6, requires_grad=True), torch.randn(6, 7)).backward()
    costs = subgraph_costs({way: info.trace(way) for way in timed}, timed, split=info.trace("forward", "forward"))
    assert sum(line.flops or 0 for line in costs["forward"].lines) == 2 * 8 * 6 * 7
    assert sum(line.flops or 0 for line in costs["backward"].lines) == 2 * 8 * 6 * 7
