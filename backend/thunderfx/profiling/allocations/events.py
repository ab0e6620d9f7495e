"""Allocations of torch's allocators while some code runs, in order, with the operator and the range they fell in.

torch's profiler counts allocations on CPU and CUDA alike. On the CPU it knows only what was allocated while it ran.

Private names of torch used here (checked on 2.13): ``kineto_results.experimental_event_tree()`` of
``torch.autograd.profiler.profile``, with ``tag``, ``name``, ``start_time_ns``, ``end_time_ns``, ``children`` and, in
``extra_fields`` of an allocation, ``ptr``, ``alloc_size``, ``total_allocated``, ``total_reserved`` and ``device``
(torch/csrc/profiler/python/init.cpp; torch/profiler/_memory_profiler.py reads the same).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler import profile, record_function

RANGE = "thunderfx:"
"""Prefix of the names of our ranges in the profiler's events."""


class Allocation(NamedTuple):
    """``change_bytes`` is negative where memory was freed. ``range`` is the innermost range of ours around it."""

    time_ns: int
    pointer: int
    change_bytes: int
    allocated_bytes: int  #: the profiler's own sum after the change
    reserved_bytes: int
    operator: str
    range: str


class Span(NamedTuple):
    """A range of ours."""

    name: str
    start_ns: int
    end_ns: int


class Recording:
    """Filled when the recording ends. ``allocations`` and ``spans`` are in order of time."""

    def __init__(self) -> None:
        self.allocations: list[Allocation] = []
        self.spans: list[Span] = []


def range_named(name: str) -> Any:
    """A context manager whose body's allocations carry ``name``."""
    return record_function(RANGE + name)


@contextlib.contextmanager
def recorded(device: torch.device) -> Iterator[Recording]:
    """Record what the body allocates on ``device``; the profiler must not run already."""
    recording = Recording()
    profiler: Any = profile(profile_memory=True)
    with _quiet():
        profiler.__enter__()
    try:
        yield recording
    finally:
        with _quiet():
            profiler.__exit__(None, None, None)
        results: Any = profiler.kineto_results
        _collect(results.experimental_event_tree(), device, recording)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the profiler's C++ part writes to stderr when it starts and ends, which no log level silences."""
    try:
        saved = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _collect(roots: list[Any], device: torch.device, into: Recording) -> None:
    todo = [(event, "", "") for event in roots]
    while todo:
        event, operator, name = todo.pop()
        if str(event.tag).endswith("Allocation"):
            found = event.extra_fields
            if found.device.type == device.type and (found.device.index or 0) == (device.index or 0):
                into.allocations.append(
                    Allocation(
                        event.start_time_ns,
                        found.ptr,
                        found.alloc_size,
                        found.total_allocated,
                        found.total_reserved,
                        operator,
                        name,
                    )
                )
            continue
        if event.name.startswith(RANGE):
            name, operator = event.name.removeprefix(RANGE), ""
            into.spans.append(Span(name, event.start_time_ns, event.end_time_ns))
        elif str(event.tag).endswith("TorchOp") and not operator:
            operator = event.name  # the outermost: what the user or autograd called
        todo += [(child, operator, name) for child in event.children]
    into.allocations.sort(key=lambda item: item.time_ns)
    into.spans.sort(key=lambda item: item.start_ns)
