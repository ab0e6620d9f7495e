"""The backend and the measuring part on a CUDA device."""

from __future__ import annotations

import pytest
import torch
from thunderfx import thunderfx
from thunderfx.profiling.memory import MemoryMeter
from thunderfx.profiling.nvml import NvmlSampler, device_uuid_of
from thunderfx.profiling.timer import StepTimer

from thunderfx_cli.loading.model import LoadedModel
from thunderfx_cli.running.check import check_against_eager

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


def test_a_step_equals_eager():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
    loaded = LoadedModel(model, (torch.randn(16, 64, device="cuda"),), {}, None, "mlp")
    compiled = thunderfx(model)
    assert check_against_eager(loaded, compiled, seed=0, train=True).ok
    assert "cuda:0" in str(compiled.last_backward_traces[0])


def test_timer_and_memory_measure_a_step():
    timer, meter = StepTimer("cuda"), MemoryMeter("cuda")
    with timer.step(), timer.phase("forward"), meter.phase("forward"):
        torch.ones(1 << 20, device="cuda").sum()
    assert timer.samples()["forward"][0] > 0
    assert meter.readings()["allocated_forward_peak_bytes"].value >= 4 << 20


def test_nvml_sees_this_device():
    with NvmlSampler(device_uuid_of("cuda:0")) as sampler:
        torch.ones(1 << 20, device="cuda").sum().item()
    total = sampler.readings()["device_total_bytes"]
    assert total.value == pytest.approx(torch.cuda.mem_get_info()[1], rel=0.1)
