"""The device's ceilings for the arithmetic that the lines of a run do."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from thunderfx.profiling.calibration import ceilings_of
from thunderfx.profiling.costed import costed_lines
from thunderfx.profiling.costs import Ceilings, TraceCosts
from thunderfx.profiling.roofline import flop_dtypes
from thunderfx.trace import TraceCtx


def run_ceilings(device: torch.device, costs: Iterable[tuple[TraceCtx, TraceCosts]]) -> Ceilings:
    """Ceilings of ``device``, from the cache or measured now; at least what the lines themselves came to."""
    achieved: dict[str, float] = {}
    for trace, found in costs:
        achieved |= {dtype: achieved.get(dtype, 0.0) for dtype in flop_dtypes(trace, found.lines)}
        for item in costed_lines(trace, found, None):
            if item.dtype in achieved and item.limit.flops_per_s is not None:
                achieved[item.dtype] = max(achieved[item.dtype], item.limit.flops_per_s)
    return ceilings_of(device, achieved)
