"""The stages between an AOTAutograd graph and the program that runs, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from thunderfx.passes.cse import cse
from thunderfx.passes.dce import dce
from thunderfx.passes.liveness import insert_dels
from thunderfx.passes.stage import Stage
from thunderfx.passes.views import remove_noop_views
from thunderfx.trace import TraceCtx

Transform = Callable[[TraceCtx], TraceCtx]


def stages_after_lowering(transforms: Sequence[Transform]) -> list[tuple[str, Transform]]:
    """Name and pass of each stage."""
    return [
        ("cse", cse),
        ("views", remove_noop_views),
        ("dce", dce),
        *((f"transform:{transform_name(transform)}", transform) for transform in transforms),
        ("execution", insert_dels),
    ]


def transform_name(transform: Transform) -> str:
    return str(getattr(transform, "name", None) or getattr(transform, "__name__", type(transform).__name__))


def run_stages(trace: TraceCtx, transforms: Sequence[Transform], record: Callable[[Stage], None]) -> TraceCtx:
    """Run all stages on a lowered trace; each result goes to ``record`` with the time that it took.

    An exception from a pass is raised as it is; ``Stage`` results before it are recorded.
    """
    for name, apply in stages_after_lowering(transforms):
        start = time.perf_counter_ns()
        result = apply(trace)
        if not isinstance(result, TraceCtx):
            raise TypeError(f"stage {name!r} returned {type(result).__name__}, not a TraceCtx")
        trace = result.replace(provenance=f"{trace.name}, after {name}")
        record(Stage(name, trace, (time.perf_counter_ns() - start) / 1e6))
    return trace
