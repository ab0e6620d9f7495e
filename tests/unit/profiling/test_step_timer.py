"""StepTimer on the CPU, and its CUDA path on a stand-in for torch.cuda."""

import time

import pytest
import torch
from thunderfx.profiling.timer import StepTimer


@pytest.fixture
def clock(monkeypatch):
    """A perf_counter_ns that stands still; `clock.advance(ms)` moves it."""

    class Clock:
        now = 0

        def advance(self, ms):
            self.now += round(ms * 1e6)

    clock = Clock()
    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock.now)
    return clock


def test_phases_and_step(clock):
    timer = StepTimer("cpu")
    for forward, backward, rest in [(2, 4, 1), (3, 5, 0)]:
        with timer.step():
            with timer.phase("forward"):
                clock.advance(forward)
            with timer.phase("backward"):
                clock.advance(backward)
            clock.advance(rest)
    assert timer.samples() == {"forward": [2.0, 3.0], "backward": [4.0, 5.0], "step": [7.0, 8.0]}


def test_keys_are_there_before_any_step():
    assert StepTimer(torch.device("cpu")).samples() == {"forward": [], "backward": [], "step": []}


def test_repeated_phase_counts_as_its_sum_and_others_get_their_name(clock):
    timer = StepTimer("cpu")
    with timer.step():
        for ms in (1, 2):
            with timer.phase("forward"):
                clock.advance(ms)
        with timer.phase("optimizer"):
            clock.advance(5)
    assert timer.samples() == {"forward": [3.0], "backward": [], "step": [8.0], "optimizer": [5.0]}


def test_failed_step_leaves_no_sample_and_the_next_one_counts(clock):
    timer = StepTimer("cpu")
    with pytest.raises(ZeroDivisionError), timer.step(), timer.phase("forward"):
        raise ZeroDivisionError
    assert timer.samples() == {"forward": [], "backward": [], "step": []}
    with timer.step(), timer.phase("forward"):
        clock.advance(1)
    assert timer.samples() == {"forward": [1.0], "backward": [], "step": [1.0]}


def test_samples_are_a_copy(clock):
    timer = StepTimer("cpu")
    timer.samples()["step"].append(1.0)
    assert timer.samples()["step"] == []


def test_misuse_is_refused():
    timer = StepTimer("cpu")
    with pytest.raises(RuntimeError, match="outside a step"), timer.phase("forward"):
        pass
    with timer.step():
        with pytest.raises(RuntimeError, match="already"), timer.step():
            pass
        with timer.phase("forward"), pytest.raises(RuntimeError, match="do not nest"), timer.phase("backward"):
            pass
        with pytest.raises(ValueError), timer.phase("step"):
            pass
    with pytest.raises(ValueError, match="mps"):
        StepTimer("mps")


def test_cuda_uses_events_and_one_synchronisation_after_the_step(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            assert stream == "stream of cuda:1"
            self.at = len(log)
            log.append("event")

        def elapsed_time(self, end):
            assert "synchronize" in log[end.at :]
            return float(end.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("synchronize"))
    timer = StepTimer(torch.device("cuda", 1))
    with timer.step():
        with timer.phase("forward"):
            log.append("work")
        with timer.phase("backward"):
            log.extend(["work", "work"])
    assert timer.samples() == {"forward": [2.0], "backward": [3.0], "step": [8.0]}
    assert log.count("synchronize") == 1 and log[-1] == "synchronize"
