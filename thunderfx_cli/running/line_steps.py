"""Steps after the timed ones that measure each line, in turns with plain steps to compare them with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from thunderfx.profiling.costs import TraceCosts
from thunderfx.profiling.line_costs import subgraph_costs
from thunderfx.profiling.line_timer import LineTimer, Timed

from thunderfx_cli.running.measured import Measured
from thunderfx_cli.running.options import RunOptions
from thunderfx_cli.running.step_parts import StepMarks, middle_half, parts_of

MOST_STEPS = 10
#: A slow model gets fewer steps, but not fewer than ``LEAST_STEPS``, once this many seconds have gone by.
ENOUGH_S = 10.0
LEAST_STEPS = 3


class LineSteps:
    """The programs of a run's subgraphs under measurement."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.timer = LineTimer(device)
        self._timed: dict[int, dict[str, Timed]] = {}

    def take(self, infos: list[Any]) -> None:
        """Measure the programs of these subgraphs too; known ones stay."""
        for info in infos:
            known = self._timed.setdefault(id(info), {})
            for direction, program in info.programs.items():
                trace = info.trace(direction)
                if direction not in known and trace is not None:
                    known[direction] = self.timer.add(trace, program, direction)

    def costs(self, info: Any) -> dict[str, TraceCosts]:
        """Costs by direction of a subgraph's execution traces."""
        return costs_of(info, self._timed.get(id(info), {}), self.timer)


def costs_of(info: Any, timed: dict[str, Timed], timer: LineTimer | None, note: str = "") -> dict[str, TraceCosts]:
    """The same where nothing was measured, for the reason ``note``."""
    if info.in_eager:
        return {}
    traces = {way: info.trace(way, "execution") for way in ("forward", "backward")}
    return subgraph_costs(
        {way: trace for way, trace in traces.items() if trace is not None},
        timed,
        split=info.trace("forward", "forward"),
        mark_ms=timer.mark_ms if timer is not None and any(item.calls for item in timed.values()) else 0.0,
        clock=timer.clock.name if timer is not None else "",
        note=note,
    )


class ModelStep(Protocol):
    def plain(self) -> None: ...

    def parted(self, mark: Callable[[], Any]) -> StepMarks: ...


def measure_lines(step: ModelStep, options: RunOptions, measured: Measured, say: Callable[[str], None]) -> None:
    """Fill ``measured.lines`` and ``measured.step_parts``: one marked and one plain step for each timed one."""
    if not options.steps or not any(info.programs for info in measured.subgraphs):
        return
    measured.lines = lines = LineSteps(options.device)
    lines.take(measured.subgraphs)
    parts: list[dict[str, float]] = []
    count = min(options.steps, MOST_STEPS)
    with lines.timer.marked(keep=False):
        step.plain()
    start = time.perf_counter()
    try:
        for number in range(count):
            if number >= LEAST_STEPS and time.perf_counter() - start > ENOUGH_S:
                break
            say(f"measuring lines {number + 1}/{count}")
            with lines.timer.marked():
                step.plain()
            with lines.timer.bracketed() as spans:
                marks = step.parted(lines.timer.clock.mark)
            parts.append(parts_of(lines.timer.clock, marks, spans))
    finally:
        measured.step_parts = middle_half(parts)
