"""The memory of a step, measured and explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunderfx.profiling.allocations.alive import Alive
from thunderfx.profiling.allocations.model import MemoryProfile, Saved
from thunderfx.profiling.allocations.peak import Timeline, explain, lines_of, phases_of, points_of
from thunderfx.profiling.allocations.recorder import Phase, Program, StepRecord, record_step
from thunderfx.profiling.allocations.roles import Roles
from thunderfx.profiling.allocations.saved import Pair, saved_for_backward


def profile_step(
    infos: Sequence[Any],
    phases: Sequence[Phase],
    alive: Callable[[], list[Alive]],
    device: torch.device,
    containers: frozenset[str] = frozenset(),
) -> MemoryProfile:
    """Run ``phases`` once, watched, and explain what they held; ``infos`` are the subgraphs whose programs they run.

    ``containers`` as for :func:`saved_for_backward`. Slower than a plain step. What a phase raises is raised.
    """
    record = record_step(infos, phases, alive, device)
    timeline = Timeline(record)
    reserves = device.type == "cuda"
    return MemoryProfile(
        peak=explain(record, timeline, Roles(record.programs)),
        phases=phases_of(record, timeline, reserves=reserves),
        points=points_of(record, timeline, reserves=reserves),
        lines=lines_of(record, timeline),
        saved=_saved(record, containers),
    )


def _saved(record: StepRecord, containers: frozenset[str]) -> Saved | None:
    forwards = {program.subgraph: program for program in record.programs if program.direction == "forward"}
    pairs = [
        Pair(forwards[program.subgraph], program, _storages(record, program.subgraph))
        for program in record.programs
        if program.direction == "backward" and program.subgraph in forwards
    ]
    return saved_for_backward(pairs, containers) if pairs else None


def _storages(record: StepRecord, subgraph: int) -> dict[str, tuple[int, int]]:
    before = {item.pointer for item in record.alive}
    saved = record.saved.get(subgraph, ())
    return {name: (pointer, size) for name, pointer, size in saved if pointer not in before}


def estimated_saved(infos: Sequence[Any], containers: frozenset[str] = frozenset()) -> Saved | None:
    """The same from the traces alone, for a run whose steps are not ours to repeat."""
    pairs = [
        Pair(Program(number, "forward", info.forward), Program(number, "backward", info.backward))
        for number, info in enumerate(infos)
        if info.forward is not None and info.backward is not None
    ]
    return saved_for_backward(pairs, containers) if pairs else None
