"""One step of a subgraph's history."""

from __future__ import annotations

import dataclasses

from thunderfx.trace import TraceCtx


@dataclasses.dataclass(frozen=True)
class Stage:
    """``trace`` is the state after the step called ``name``, which took ``time_ms``."""

    name: str
    trace: TraceCtx
    time_ms: float
