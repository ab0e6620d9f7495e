"""A figure over the stored runs of one target on one device: series, and where their level changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

import msgspec
from thunderfx.profiling.change_points import ChangePoint, change_points, exact_changes

from thunderfx_cli.errors import UsageError
from thunderfx_cli.store.schema import Run

_PHASES = ("step", "forward", "backward", "first_call", "first_backward")
_COUNTS: dict[str, Callable[[Run], int]] = {
    "graph_breaks": lambda run: len(run.graph_breaks),
    "subgraphs": lambda run: len(run.subgraphs),
    "recompiles": lambda run: sum(graph.replaces is not None for graph in run.subgraphs),
    "fallbacks": lambda run: sum(len(graph.fallbacks) for graph in run.subgraphs),
    "fusions": lambda run: sum(graph.fusions for graph in run.subgraphs),
    "forward_lines": lambda run: sum(graph.forward_lines for graph in run.subgraphs),
    "backward_lines": lambda run: sum(graph.backward_lines for graph in run.subgraphs),
}
#: Readings that equal runs have alike, as they come from traces.
_EXACT = ("saved_for_backward_bytes",)
#: Options that change what is measured (``steps`` and ``warmup`` change how often), with what they usually are.
_OPTIONS: dict[str, str | bool | None] = {
    "inputs": None,
    "backend": "thunderfx",
    "executors": None,
    "dynamic": None,
    "fullgraph": False,
    "backward": True,
}
#: What may explain a change of level.
_SURROUNDINGS = ("torch", "thunderfx", "python", "driver", "cuda", "threads", "platform")


class Point(msgspec.Struct, frozen=True):
    """One run. ``value`` is in the unit of the series."""

    run: str
    name: str
    created: str
    commit: str
    dirty: bool
    value: float


class Change(msgspec.Struct, frozen=True):
    """A change of level at ``run``, the first with the new one; ``surroundings`` is what changed around it."""

    run: str
    commit: str
    at: ChangePoint
    surroundings: tuple[str, ...] = ()


class Series(msgspec.Struct, frozen=True):
    """Runs that can be compared, oldest first. ``configuration`` is what they share: target, device, inputs, options
    that are not the usual ones."""

    configuration: dict[str, str]
    points: tuple[Point, ...]
    changes: tuple[Change, ...]


class History(msgspec.Struct, frozen=True):
    """Series of one metric, that of the newest run first. ``without`` counts the runs that lack it."""

    metric: str
    unit: str
    series: tuple[Series, ...]
    without: int = 0


def history(runs: Sequence[Run], metric: str) -> History:
    """The metric over ``runs``, which come newest first; runs that differ in what was run where are not mixed.

    Raises :class:`UsageError` for a metric that none of them has, naming those that there are.
    """
    groups: dict[tuple[tuple[str, str], ...], list[tuple[Run, float]]] = {}
    without = 0
    for run in runs:
        value = figure(run, metric)
        if value is None or not math.isfinite(value):
            without += 1
        else:
            groups.setdefault(tuple(_configuration(run).items()), []).append((run, value))
    if not groups:
        known = dict.fromkeys(name for run in runs for name in metric_names(run))
        raise UsageError(f"--metric {metric}: no run has it", hint=f"Metrics: {', '.join(known)}." if known else "")
    exact = metric in _COUNTS or metric in _EXACT
    found = tuple(_series(dict(key), group[::-1], exact) for key, group in groups.items())
    return History(metric, _unit(metric), found, without)


def metric_names(run: Run) -> Iterator[str]:
    """Metrics that a run has."""
    yield from (f"{phase}_time" for phase in _PHASES if phase in run.timings)
    yield from _COUNTS
    yield from (name for name, reading in run.memory.readings.items() if reading.value is not None)


def figure(run: Run, metric: str) -> float | None:
    """The metric of one run: a phase's median in ms, a count, or a reading of memory."""
    if metric in _COUNTS:
        return None if run.mode == "bench" else float(_COUNTS[metric](run))
    timing = run.timings.get(metric.removesuffix("_time")) if metric.endswith("_time") else None
    if timing is not None:
        return median(timing.samples_ms) if timing.samples_ms else None
    reading = run.memory.readings.get(metric)
    return None if reading is None else reading.value


def _unit(metric: str) -> str:
    if metric.endswith("_time"):
        return "ms"
    return "count" if metric in _COUNTS else metric.rsplit("_", 1)[-1]


def _configuration(run: Run) -> dict[str, str]:
    env = run.environment
    found = {"target": run.target, "device": env.device, "device_name": env.device_name}
    if run.mode != "model":
        found["mode"] = run.mode
    options = {name: run.options.get(name, usual) for name, usual in _OPTIONS.items()}
    found |= {name: str(value) for name, value in options.items() if value != _OPTIONS[name]}
    if run.subgraphs:  # of the first graph: parameters, whose names are dotted, are the model's own
        shapes = [text for text in run.subgraphs[0].inputs if "." not in text.partition(":")[0]]
        found["shapes"] = ", ".join(shapes)
    return found


def _series(configuration: dict[str, str], group: list[tuple[Run, float]], exact: bool) -> Series:
    values = [value for _, value in group]
    points = tuple(
        Point(run.id, run.name, run.created, run.environment.git_commit, run.environment.git_dirty, value)
        for run, value in group
    )
    changes = []
    for found in exact_changes(values) if exact else change_points(values):
        before, after = group[found.index - 1][0].environment, group[found.index][0].environment
        pairs = [(name, str(getattr(before, name)), str(getattr(after, name))) for name in _SURROUNDINGS]
        around = tuple(f"{name} {x} -> {y}" for name, x, y in pairs if x != y)
        changes.append(Change(points[found.index].run, points[found.index].commit, found, around))
    return Series(configuration, points, tuple(changes))
