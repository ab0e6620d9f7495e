"""Memory of a step: the allocator's peaks per phase on CUDA, the process's resident set everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from thunderfx.profiling.reading import Reading

if TYPE_CHECKING:
    import torch

ON_CPU = "CPU: torch keeps no allocator statistics"


class MemoryMeter:
    """Peaks over all phases measured so far.

    On CUDA each phase resets torch's peak statistics of the device, also for anyone else who reads them. The peak of
    `backward` is absolute: it contains the parameters and what the forward saved. The allocator counts on the host
    when a kernel is launched, so no synchronisation is needed. Phases do not nest (RuntimeError).
    """

    def __init__(self, device: str | torch.device) -> None:
        self._device = str(device)
        self._on_cuda = self._device.partition(":")[0] == "cuda"
        self._allocated_peaks: dict[str, int] = {}
        self._reserved_peak: int | None = None
        self._rss_before: int | None = None
        self._rss_after: int | None = None
        self._open_phase: str | None = None

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if self._open_phase is not None:
            raise RuntimeError(f"phase {name!r} is inside phase {self._open_phase!r}; phases do not nest")
        if self._rss_before is None:
            self._rss_before = resident_bytes()
        self._open_phase = name
        if self._on_cuda:
            _reset_peaks(self._device)
        try:
            yield
        finally:
            self._open_phase = None
            if self._on_cuda:
                self._record_peaks(name)
            self._rss_after = resident_bytes()

    def readings(self) -> dict[str, Reading]:
        """`allocated_forward_peak_bytes`, `allocated_backward_peak_bytes` (and one per further phase),
        `reserved_peak_bytes`, `rss_before_bytes` (before the first phase), `rss_bytes` (after the last one) and
        `rss_peak_bytes` (of the process since it began)."""
        readings = {}
        for phase in dict.fromkeys(("forward", "backward", *self._allocated_peaks)):
            readings[f"allocated_{phase}_peak_bytes"] = self._allocator_reading(
                self._allocated_peaks.get(phase), f"no {phase} phase was measured", "torch.cuda.max_memory_allocated"
            )
        readings["reserved_peak_bytes"] = self._allocator_reading(
            self._reserved_peak, "no phase was measured", "torch.cuda.max_memory_reserved"
        )
        for name, value in (("rss_before_bytes", self._rss_before), ("rss_bytes", self._rss_after)):
            readings[name] = Reading(value, "" if value is not None else "no phase was measured", "psutil")
        readings["rss_peak_bytes"] = resident_peak()
        return readings

    def _record_peaks(self, phase: str) -> None:
        import torch

        allocated = torch.cuda.max_memory_allocated(self._device)
        self._allocated_peaks[phase] = max(self._allocated_peaks.get(phase, 0), allocated)
        self._reserved_peak = max(self._reserved_peak or 0, torch.cuda.max_memory_reserved(self._device))

    def _allocator_reading(self, value: int | None, missing: str, source: str) -> Reading:
        if not self._on_cuda:
            return Reading(None, ON_CPU, "torch")
        return Reading(value, "" if value is not None else missing, source)


def resident_bytes() -> int:
    """Resident set size of this process now."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def resident_peak() -> Reading:
    """Largest resident set size of this process so far.

    Linux: VmHWM (proc_pid_status(5)), since `ru_maxrss` survives execve and so begins with the size of whoever
    started the process. Elsewhere `ru_maxrss`, in KiB on Linux and BSD, in bytes on macOS (getrusage(2)).
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return Reading(int(line.split()[1]) * 1024, source="VmHWM in /proc/self/status")
    except OSError:
        pass  # no Linux /proc here: getrusage answers
    try:
        import resource
    except ImportError:
        return Reading(None, "this platform has no getrusage", "getrusage")
    scale = 1 if sys.platform == "darwin" else 1024
    return Reading(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale, source="ru_maxrss of getrusage")


def _reset_peaks(device: str) -> None:
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call]  # the statistics exist only once CUDA is initialised
    torch.cuda.reset_peak_memory_stats(device)
