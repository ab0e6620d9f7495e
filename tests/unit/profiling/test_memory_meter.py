"""MemoryMeter on the CPU, and its CUDA path on a stand-in for torch.cuda."""

import pytest
import torch
from thunderfx.profiling.memory import ON_CPU, MemoryMeter, resident_peak

MIB = 1 << 20


def test_cpu_has_resident_set_and_says_why_no_allocator():
    meter = MemoryMeter("cpu")
    kept = []
    with meter.phase("forward"):
        kept.append(bytearray(b"x") * (64 * MIB))
    readings = meter.readings()
    for name in ("allocated_forward_peak_bytes", "allocated_backward_peak_bytes", "reserved_peak_bytes"):
        assert readings[name].value is None
        assert readings[name].reason == ON_CPU
    assert readings["rss_bytes"].value - readings["rss_before_bytes"].value >= 32 * MIB
    assert readings["rss_peak_bytes"].value >= readings["rss_bytes"].value * 0.99
    assert len(kept[0]) == 64 * MIB


def test_nothing_measured_is_a_reason_not_zero():
    readings = MemoryMeter("cpu").readings()
    assert readings["rss_bytes"].value is None
    assert readings["rss_bytes"].reason == "no phase was measured"


def test_peak_falls_back_to_getrusage(monkeypatch):
    def no_proc(self, *args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr("thunderfx.profiling.memory.Path.read_text", no_proc)
    reading = resident_peak()
    assert reading.source == "ru_maxrss of getrusage"
    assert reading.value > MIB


def test_phases_do_not_nest_and_a_failed_phase_ends():
    meter = MemoryMeter("cpu")
    with meter.phase("forward"), pytest.raises(RuntimeError, match="do not nest"), meter.phase("backward"):
        pass
    with pytest.raises(ZeroDivisionError), meter.phase("forward"):
        raise ZeroDivisionError
    with meter.phase("backward"):
        pass


def test_cuda_peaks_are_per_phase_and_the_largest_of_all_steps(monkeypatch):
    class Allocator:
        allocated = reserved = 0

        def reset(self, device):
            assert device == "cuda:0"
            self.allocated = self.reserved = 0

    allocator = Allocator()
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", allocator.reset)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: allocator.allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: allocator.reserved)
    meter = MemoryMeter("cuda:0")
    for forward, backward in [(10, 30), (12, 25)]:
        with meter.phase("forward"):
            allocator.allocated, allocator.reserved = forward, 2 * forward
        with meter.phase("backward"):
            allocator.allocated, allocator.reserved = backward, 2 * backward
    readings = meter.readings()
    assert readings["allocated_forward_peak_bytes"].value == 12
    assert readings["allocated_backward_peak_bytes"].value == 30
    assert readings["reserved_peak_bytes"].value == 60
    assert readings["rss_bytes"].value > 0


def test_cuda_without_backward_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    for name in ("reset_peak_memory_stats", "max_memory_allocated", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 5)
    meter = MemoryMeter("cuda")
    with meter.phase("forward"):
        pass
    reading = meter.readings()["allocated_backward_peak_bytes"]
    assert (reading.value, reading.reason) == (None, "no backward phase was measured")
