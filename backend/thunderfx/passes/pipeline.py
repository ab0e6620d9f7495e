"""The stages between an AOTAutograd graph and the program that runs, in order."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

from thunderfx.executors import Executor
from thunderfx.passes.cse import cse
from thunderfx.passes.dce import dce
from thunderfx.passes.fuse import Fusing
from thunderfx.passes.in_place import work_in_place
from thunderfx.passes.liveness import insert_dels
from thunderfx.passes.place import place
from thunderfx.passes.stage import Stage
from thunderfx.passes.views import simplify_views
from thunderfx.trace import TraceCtx

Transform = Callable[[TraceCtx], TraceCtx]
LEVELS = ("torch", "aten")


def transform(*, level: str = "aten", name: str = "") -> Callable[[Transform], Transform]:
    """Decorator that says where a transform applies and how its stage is called.

    ``level="torch"``: once per subgraph, to the trace of Dynamo's graph, before differentiation. ``level="aten"``,
    which is what a plain callable gets: to the forward and to the backward trace (``trace.name`` tells which).
    Raises ``ValueError`` for another level.
    """
    if level not in LEVELS:
        raise ValueError(f"level is one of {', '.join(map(repr, LEVELS))}, not {level!r}")

    def mark(function: Transform) -> Transform:
        function.level = level  # type: ignore[attr-defined]
        function.name = name or transform_name(function)  # type: ignore[attr-defined]
        return function

    return mark


def at_level(transforms: Sequence[Transform], level: str) -> list[Transform]:
    return [transform for transform in transforms if getattr(transform, "level", "aten") == level]


def stages_after_lowering(
    transforms: Sequence[Transform], executors: Sequence[Executor], fusing: Fusing | None
) -> list[tuple[str, Transform]]:
    """Name and pass of each stage; with the torch executor alone there is nothing to place and to fuse."""
    placing: list[tuple[str, Transform]] = []
    if len(executors) > 1:
        placing.append(("placed", functools.partial(place, executors=executors)))
        if fusing is not None and fusing.fusers:
            placing.append(("fused", fusing))
    return [
        ("cse", cse),
        ("views", simplify_views),
        ("dce", dce),
        *((f"transform:{transform_name(transform)}", transform) for transform in transforms),
        *placing,
        ("in_place", work_in_place),
        ("execution", insert_dels),
    ]


def transform_name(transform: Transform) -> str:
    return str(getattr(transform, "name", None) or getattr(transform, "__name__", type(transform).__name__))


def run_stages(
    trace: TraceCtx,
    transforms: Sequence[Transform],
    record: Callable[[Stage], None],
    executors: Sequence[Executor] = (),
    fusing: Fusing | None = None,
) -> TraceCtx:
    """Run all stages on a lowered trace; each result goes to ``record`` with the time that it took.

    An exception from a pass is raised as it is; ``Stage`` results before it are recorded.
    """
    for name, apply in stages_after_lowering(at_level(transforms, "aten"), executors, fusing):
        trace = run_stage(name, apply, trace, record)
    return trace


def run_stage(name: str, apply: Transform, trace: TraceCtx, record: Callable[[Stage], None]) -> TraceCtx:
    """Run one stage. Raises ``TypeError`` where it returns anything but a trace."""
    start = time.perf_counter_ns()
    result = apply(trace)
    if not isinstance(result, TraceCtx):
        raise TypeError(f"stage {name!r} returned {type(result).__name__}, not a TraceCtx")
    if result is not trace:
        trace = result.replace(provenance=f"{trace.name}, after {name}")
    record(Stage(name, trace, (time.perf_counter_ns() - start) / 1e6))
    return trace
