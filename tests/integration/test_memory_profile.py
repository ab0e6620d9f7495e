"""The memory of real steps on the CPU, measured and explained."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from thunderfx import thunderfx
from thunderfx.profiling.allocations.alive import alive_tensors, of_module
from thunderfx.profiling.allocations.events import recorded
from thunderfx.profiling.allocations.profile import profile_step

CPU = torch.device("cpu")
SAMPLES = Path(__file__).parents[2] / "sample_models"


def profiled(model, args, loss):
    """The profile of one step of the compiled model, and the compiled model."""
    fn = thunderfx(model)
    loss(fn(*args)).backward()
    model.zero_grad()
    held = {}
    phases = [
        ("forward", lambda: held.update(output=fn(*args))),
        ("loss", lambda: held.update(loss=loss(held.pop("output")))),
        ("backward", lambda: held.pop("loss").backward()),
    ]
    named = [*of_module(model), *(("inputs", f"input {i}", arg) for i, arg in enumerate(args))]
    return profile_step(fn.subgraph_infos, phases, lambda: alive_tensors(CPU, named), CPU), fn


def by_kind(peak):
    sums = {}
    for group in peak.groups:
        sums[group.kind] = sums.get(group.kind, 0) + group.bytes
    return sums


@pytest.mark.parametrize("name", ["mlp", "llama", "nanogpt", "convnet", "vit"])
def test_at_least_95_percent_of_a_samples_peak_is_named(name):
    spec = importlib.util.spec_from_file_location(name, SAMPLES / f"{name}.py")
    sample = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sample)
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, args = sample.model(), sample.inputs()
    profile, fn = profiled(model, args, sample.loss)
    peak = profile.peak
    assert peak.named_bytes >= 0.95 * peak.measured_bytes
    kinds = by_kind(peak)
    assert kinds["parameters"] == sum(p.numel() * p.element_size() for p in model.parameters())
    assert sum(kinds.values()) == peak.measured_bytes
    assert 0 < kinds["saved for backward"] <= profile.saved.bytes
    assert fn.subgraph_infos[0].fallbacks == []
    with recorded(CPU) as recording:  # the programs from before run again
        fn(*args)
    assert recording.allocations and recording.spans == []


def test_figures_of_a_step_that_can_be_counted_by_hand():
    model = torch.nn.Linear(1000, 500, bias=False)
    x = torch.randn(200, 1000)
    profile, _ = profiled(model, (x,), lambda y: y.sum())
    weight, output = 1000 * 500 * 4, 200 * 500 * 4
    kinds = by_kind(profile.peak)
    assert kinds["parameters"] == kinds["gradients"] == weight
    assert kinds["inputs"] == 200 * 1000 * 4
    assert profile.saved is None or profile.saved.bytes == 0  # it saves its input alone
    forward = next(phase for phase in profile.phases if phase.name == "forward")
    assert forward.end_bytes == profile.peak.before_bytes + output
    mm = max(profile.lines, key=lambda item: item.allocated_bytes)
    assert (mm.direction, mm.allocated_bytes) == ("backward", weight)


def test_a_tensor_that_nobody_names_is_not_named():
    kept = torch.empty(123_456, dtype=torch.uint8)
    model = torch.nn.Linear(10, 10)
    profile, _ = profiled(model, (torch.randn(4, 10),), lambda y: y.sum())
    assert by_kind(profile.peak)["unnamed"] >= kept.numel()
    assert profile.peak.named_bytes <= profile.peak.measured_bytes - kept.numel()
