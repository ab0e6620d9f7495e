"""Measurements of a run: time, memory, NVML, environment and their statistics.

Names load on demand and no module here imports torch at import time, so that the command line can
compare stored samples without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunderfx.profiling.environment import describe
    from thunderfx.profiling.memory import MemoryMeter
    from thunderfx.profiling.nvml import NvmlSampler
    from thunderfx.profiling.reading import Reading
    from thunderfx.profiling.statistics import Summary, Verdict, significant, summarise
    from thunderfx.profiling.timer import StepTimer

__all__ = [
    "MemoryMeter",
    "NvmlSampler",
    "Reading",
    "StepTimer",
    "Summary",
    "Verdict",
    "describe",
    "significant",
    "summarise",
]

_HOMES = {
    "MemoryMeter": "memory",
    "NvmlSampler": "nvml",
    "Reading": "reading",
    "StepTimer": "timer",
    "Summary": "statistics",
    "Verdict": "statistics",
    "describe": "environment",
    "significant": "statistics",
    "summarise": "statistics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
