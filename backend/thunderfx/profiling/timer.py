"""Times of steps and of their phases, on the device's own clock where it has one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from thunderfx.profiling.clock import Clock, Mark

if TYPE_CHECKING:
    import torch


class StepTimer:
    """Measures forward, backward and step in milliseconds.

    CUDA: `torch.cuda.Event` pairs on the stream that is current when a phase begins or ends, and one synchronisation
    when the step ends, outside the measured span; so the device is idle when the next step begins and its first event
    has no queue to wait for. CPU: `time.perf_counter_ns`.

    A phase entered several times in one step (gradient accumulation) counts as their sum. A step left by an exception
    leaves no sample. Raises ValueError for a device that is neither cpu nor cuda.
    """

    def __init__(self, device: str | torch.device) -> None:
        self._clock = Clock(device)
        self._samples: dict[str, list[float]] = {"forward": [], "backward": [], "step": []}
        self._spans: list[tuple[str, Mark, Mark]] | None = None
        self._open_phase: str | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step; raises RuntimeError inside another."""
        if self._spans is not None:
            raise RuntimeError("a step is already being timed")
        self._spans = []
        try:
            begin = self._clock.mark()
            yield
            end = self._clock.mark()
            spans = [*self._spans, ("step", begin, end)]
        finally:
            self._spans = None
            self._open_phase = None
        self._clock.wait()
        totals: dict[str, float] = {}
        for name, start, stop in spans:
            totals[name] = totals.get(name, 0.0) + self._clock.elapsed_ms(start, stop)
        for name, total in totals.items():
            self._samples.setdefault(name, []).append(total)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """One phase of the running step; raises RuntimeError outside a step or inside another phase."""
        if name == "step":
            raise ValueError("'step' is the whole step's name; give the phase another")
        if self._spans is None:
            raise RuntimeError(f"phase {name!r} is outside a step")
        if self._open_phase is not None:
            raise RuntimeError(f"phase {name!r} is inside phase {self._open_phase!r}; phases do not nest")
        self._open_phase = name
        begin = self._clock.mark()
        try:
            yield
        finally:
            self._open_phase = None
        self._spans.append((name, begin, self._clock.mark()))

    def samples(self) -> dict[str, list[float]]:
        """Milliseconds per finished step, in order; `forward`, `backward` and `step` are always there."""
        return {name: list(values) for name, values in self._samples.items()}
