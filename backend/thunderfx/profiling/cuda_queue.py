"""Keeping a CUDA stream busy while the host fills its queue, so that what is measured runs without gaps.

Private names of torch used here (checked on 2.13): ``torch.cuda._sleep``, which spins for a number of clock cycles.
"""

from __future__ import annotations

from typing import Any

#: A longer wait would only make the measurement take longer: the queue holds about a thousand launches.
MOST_MS = 100.0
_CYCLES = 1_000_000


class QueueFiller:
    """Spins on the current stream for a time in milliseconds."""

    def __init__(self) -> None:
        import torch

        cuda: Any = torch.cuda
        self._spin = cuda._sleep
        begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
        self._spin(_CYCLES)
        begin.record()
        self._spin(_CYCLES)
        end.record()
        end.synchronize()
        self._cycles_per_ms = _CYCLES / max(begin.elapsed_time(end), 1e-3)

    def hold(self, time_ms: float) -> None:
        self._spin(int(min(time_ms, MOST_MS) * self._cycles_per_ms))
