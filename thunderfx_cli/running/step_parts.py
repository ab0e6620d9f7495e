"""Where the time of a step went, next to the programs of its subgraphs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from thunderfx.profiling.clock import Clock
from thunderfx.profiling.line_timer import Span

from thunderfx_cli.store.schema import StepPart, StepParts

Stretch = tuple[Any, Any]
"""Two points in time, of :class:`Clock`."""

_DETAILS = {
    "forward: programs": "of the subgraphs, as the traces show them",
    "forward: before programs": "Dynamo's guards, arguments, autograd's call",
    "forward: between programs": "code at graph breaks, guards of what goes on after them, subgraphs that fell back",
    "forward: after programs": "what is saved for backward, outputs",
    "forward: compiled calls": "no program of a subgraph ran in them",
    "loss": "outside the model",
    "backward: programs": "of the subgraphs",
    "backward: outside programs": "autograd's engine, accumulation, gradients of what is outside subgraphs",
    "data loading": "waiting for the next batch of a DataLoader",
    "optimizer": "its step()",
    "unattributed": "the rest of the step",
}


@dataclasses.dataclass
class StepMarks:
    """One plain step: calls of compiled objects, and what else is known of it."""

    begin: Any
    end: Any
    calls: list[Stretch] = dataclasses.field(default_factory=list)
    loss: list[Stretch] = dataclasses.field(default_factory=list)
    backward: list[Stretch] = dataclasses.field(default_factory=list)
    optimizer: list[Stretch] = dataclasses.field(default_factory=list)
    data: list[Stretch] = dataclasses.field(default_factory=list)


def parts_of(clock: Clock, step: StepMarks, spans: Sequence[Span]) -> dict[str, float]:
    """Milliseconds by part; they sum to ``"step"``. Every mark must have been reached."""

    def total(stretches: Sequence[Stretch]) -> float:
        return sum(clock.elapsed_ms(begin, end) for begin, end in stretches)

    parts: dict[str, float] = {}
    forward = [(span.begin, span.end) for span in spans if span.timed.direction == "forward"]
    parts["forward: programs"] = total(forward)
    for begin, end in step.calls:
        within = [
            (first, last)
            for first, last in forward
            if clock.elapsed_ms(begin, first) >= 0 and clock.elapsed_ms(last, end) >= 0
        ]
        if within:
            before, after = clock.elapsed_ms(begin, within[0][0]), clock.elapsed_ms(within[-1][1], end)
            between = clock.elapsed_ms(within[0][0], within[-1][1]) - total(within)
            found = {"before": before, "between": between if len(within) > 1 else 0.0, "after": after}
            for where, time_ms in found.items():
                parts[f"forward: {where} programs"] = parts.get(f"forward: {where} programs", 0.0) + time_ms
        else:
            whole = clock.elapsed_ms(begin, end)
            parts["forward: compiled calls"] = parts.get("forward: compiled calls", 0.0) + whole
    parts["loss"] = total(step.loss)
    parts["backward: programs"] = total([(s.begin, s.end) for s in spans if s.timed.direction == "backward"])
    parts["backward: outside programs"] = total(step.backward) - parts["backward: programs"]
    parts["data loading"] = total(step.data)
    parts["optimizer"] = total(step.optimizer)
    whole = clock.elapsed_ms(step.begin, step.end)
    parts["unattributed"] = whole - sum(parts.values())
    return {"step": whole} | parts


def middle_half(steps: Sequence[dict[str, float]]) -> StepParts | None:
    """Means over the middle half of the steps by their length: additive as the mean, steady as the median."""
    if not steps:
        return None
    ordered = sorted(steps, key=lambda step: step["step"])
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    names = [name for name in _DETAILS if any(step.get(name) for step in kept)]
    means = {name: sum(step.get(name, 0.0) for step in kept) / len(kept) for name in ("step", *names)}
    parts = tuple(StepPart(name, means[name], _DETAILS[name]) for name in names)
    return StepParts(means["step"], len(kept), parts)
