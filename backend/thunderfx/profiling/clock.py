"""Points in time on the clock of a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Mark = Any
"""A point in time: nanoseconds on the CPU, a recorded torch.cuda.Event on CUDA."""


class Clock:
    """``time.perf_counter_ns`` for the CPU; on CUDA events on the stream that is current when a mark is made.

    Raises ValueError for a device that is neither cpu nor cuda.
    """

    def __init__(self, device: str | torch.device) -> None:
        kind = str(device).partition(":")[0]
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"times are measured on cpu and cuda, not on {kind}")
        self.device = str(device)
        self.on_cuda = kind == "cuda"
        self.name = "CUDA events" if self.on_cuda else "perf_counter_ns"
        self.mark: Callable[[], Mark] = self._event if self.on_cuda else time.perf_counter_ns

    def _event(self) -> Mark:
        import torch

        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event

    def wait(self) -> None:
        """Wait until every mark has been reached: only then can times be read."""
        if self.on_cuda:
            import torch

            torch.cuda.synchronize(self.device)

    def elapsed_ms(self, begin: Mark, end: Mark) -> float:
        return begin.elapsed_time(end) if self.on_cuda else (end - begin) / 1e6  # type: ignore[no-any-return]
