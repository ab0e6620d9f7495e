"""What is kept of each Dynamo graph that was compiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from thunderfx.passes.stage import Stage
from thunderfx.trace import TraceCtx, ValueType


@dataclasses.dataclass(frozen=True)
class FallbackInfo:
    """A place where the subgraph runs as AOTAutograd's graph instead of our program.

    ``where`` is ``"graph"``, ``"forward"`` or ``"backward"``; ``stage`` the step that failed; ``reason`` the error.
    """

    where: str
    stage: str
    reason: str


@dataclasses.dataclass(frozen=True)
class GraphBreakInfo:
    """Why Dynamo ended a graph, and the user's line where it did."""

    reason: str
    file: str = ""
    line: int = 0
    source: str = ""


@dataclasses.dataclass
class SubgraphInfo:
    """One compiled Dynamo graph.

    ``stages`` is the trace history per direction (``"graph"``: the torch-level trace). ``inputs`` holds name and type
    of each example input, ``examples`` what is needed to make one like it. Times are in milliseconds.
    """

    index: int
    code: str = ""  #: ``"forward (model.py:12)"``, the code object that Dynamo compiled
    compile_id: str = ""
    replaces: int | None = None  #: index of the subgraph of the same code that no longer fitted
    recompile_reason: str = ""  #: the guard that failed, for a subgraph that replaces another
    graph_break: GraphBreakInfo | None = None
    inputs: list[tuple[str, ValueType]] = dataclasses.field(default_factory=list)
    examples: list[Any] = dataclasses.field(
        default_factory=list
    )  #: ``reproducer.TensorExample``, a scalar, or ``None``
    stages: dict[str, list[Stage]] = dataclasses.field(
        default_factory=lambda: {"graph": [], "forward": [], "backward": []}
    )
    fallbacks: list[FallbackInfo] = dataclasses.field(default_factory=list)
    saved_for_backward_bytes: int | None = None
    compile_ms: float = 0.0
    codegen_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    programs: dict[str, Callable[[list[Any]], Any]] = dataclasses.field(
        default_factory=dict, repr=False
    )  #: what runs in a direction that did not fall back, by ``codegen.boxed``
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    needs_backward: bool = False
    backward_compiled_late: bool = False  #: when it first ran, not together with the forward
    backward_calls: int = 0
    in_eager: bool = False  #: Dynamo's graph itself runs

    def trace(self, direction: str, stage: str | None = None) -> TraceCtx | None:
        """The trace after ``stage`` (default: the last one) in ``direction``, ``None`` where there is none."""
        found = [item.trace for item in self.stages[direction] if stage is None or item.name == stage]
        return found[-1] if found else None

    @property
    def forward(self) -> TraceCtx | None:
        """The final forward trace."""
        return self.trace("forward")

    @property
    def backward(self) -> TraceCtx | None:
        """The final backward trace; ``None`` where the subgraph needs no gradient."""
        return self.trace("backward")

    @property
    def stage_times_ms(self) -> dict[str, float]:
        """Compile time per stage, keyed ``"forward:dce"`` and the like."""
        times = {f"{way}:{stage.name}": stage.time_ms for way, stages in self.stages.items() for stage in stages}
        return times | {f"{way}:codegen": time_ms for way, time_ms in self.codegen_ms.items()}

    @property
    def backward_status(self) -> str:
        """What became of the backward; torch compiles it when it first runs, or together with the forward.

        ``"ran"``, ``"compiled, never ran"``, ``"never ran, so not compiled"``, ``"not needed"`` or ``"in eager"``.
        """
        if self.in_eager:
            return "in eager"
        if self.backward_calls:
            return "ran"
        if not self.needs_backward:
            return "not needed"
        return "compiled, never ran" if self.stages["backward"] else "never ran, so not compiled"
