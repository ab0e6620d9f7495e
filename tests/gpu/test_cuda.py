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


def test_a_kernel_of_the_user_is_one_line():
    import triton
    import triton.language as tl

    @triton.jit
    def add_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + index, tl.load(x_ptr + index, mask=index < n) + 1, mask=index < n)

    def fn(x):
        y = x.sin()
        out = torch.empty_like(y)
        add_one[(1,)](y, out, x.numel(), BLOCK=16)
        return out * 2

    x = torch.randn(10, device="cuda")
    compiled = thunderfx(fn)
    torch.testing.assert_close(compiled(x), fn(x))
    assert len(compiled.subgraph_infos) == 1 and compiled.fallbacks == []


def test_streams_of_the_user():
    def fn(x):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            y = x * 2
        torch.cuda.current_stream().wait_stream(stream)
        return y + 1

    x = torch.randn(10, device="cuda")
    torch.testing.assert_close(thunderfx(fn)(x), x * 2 + 1)
