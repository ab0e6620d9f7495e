"""What a run has measured so far; it is filled as the run goes, so that an interruption loses nothing."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from thunderfx.profiling.allocations.model import MemoryProfile

from thunderfx_cli.store.schema import CheckResult, ContenderResult, Reading, StepParts

if TYPE_CHECKING:
    from thunderfx_cli.running.line_steps import LineSteps


@dataclasses.dataclass
class Measured:
    """Samples are in milliseconds; ``compiled`` holds each compiled object of the run."""

    compiled: list[Any] = dataclasses.field(default_factory=list)
    backends: list[Any] = dataclasses.field(default_factory=list)
    samples_ms: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    readings: dict[str, Reading] = dataclasses.field(default_factory=dict)
    nvml: str = ""
    memory: MemoryProfile | None = None  #: of a step of its own
    loaded: Any = None  #: model mode: the ``LoadedModel``
    dynamo_ms: float = 0.0  #: Dynamo's compile time, backends included
    warnings: list[str] = dataclasses.field(default_factory=list)
    check: CheckResult | None = None
    contenders: list[ContenderResult] = dataclasses.field(default_factory=list)
    lines: LineSteps | None = None  #: what the steps after the timed ones saw of the lines
    step_parts: StepParts | None = None

    def add_sample(self, phase: str, time_ms: float) -> None:
        self.samples_ms.setdefault(phase, []).append(time_ms)

    @property
    def subgraphs(self) -> list[Any]:
        """Records of all compiled subgraphs, over all backends of the run."""
        return [info for backend in self.backends for info in backend.subgraph_infos]


class _DynamoWarnings(logging.Handler):
    """Keeps Dynamo's warnings that code will run eagerly from now on: they are easily missed."""

    def __init__(self, sink: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "limit" in text and text.splitlines()[0] not in self.sink:
            self.sink.append(text.splitlines()[0])


@contextmanager
def dynamo_warnings(sink: list[str]) -> Iterator[None]:
    """Collect into ``sink`` what Dynamo logs about recompile limits.

    torch logs the stack of every error in a fake tensor too; the error itself reaches the user by another way.
    """
    logger = logging.getLogger("torch._dynamo")
    fake_tensor = logging.getLogger("torch._subclasses.fake_tensor")
    level = fake_tensor.level
    handler = _DynamoWarnings(sink)
    logger.addHandler(handler)
    if not os.environ.get("THUNDERFX_DEBUG"):
        fake_tensor.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        fake_tensor.setLevel(level)
