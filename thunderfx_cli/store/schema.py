"""What ``run.json`` holds (schema version 1). Units are in the names; a reading that is not there is ``None``."""

from __future__ import annotations

from typing import Any

import msgspec
from thunderfx.profiling.costs import Ceilings

SCHEMA_VERSION = 1


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Samples of one phase in milliseconds, in order."""

    samples_ms: tuple[float, ...] = ()


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One figure: a value, or the reason why there is none. ``source`` says who measured."""

    value: float | None = None
    reason: str = ""
    source: str = ""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes, by the names ``allocated_forward_peak_bytes``, ``allocated_backward_peak_bytes``, ``rss_bytes``,
    ``rss_peak_bytes``, ``device_used_bytes``, ``device_used_peak_bytes``, ``device_total_bytes``,
    ``device_utilisation_percent``, ``device_power_watts``, ``saved_for_backward_bytes``."""

    readings: dict[str, Reading] = {}
    nvml: str = ""  #: one line: what NVML saw, or why it saw nothing
    profile: str = ""  #: path of the step's ``thunderfx.profiling.allocations.model.MemoryProfile``, ``""``: none


class Environment(msgspec.Struct, frozen=True, omit_defaults=True):
    python: str = ""
    torch: str = ""
    thunderfx: str = ""
    platform: str = ""
    device: str = ""  #: ``"cpu"`` or ``"cuda:0"``
    device_name: str = ""
    driver: str = ""
    cuda: str = ""
    threads: int = 0
    git_commit: str = ""
    git_dirty: bool = False


class Fallback(msgspec.Struct, frozen=True, omit_defaults=True):
    where: str  #: ``"forward"``, ``"backward"`` or ``"graph"``
    stage: str
    reason: str


class GraphBreak(msgspec.Struct, frozen=True, omit_defaults=True):
    reason: str
    file: str = ""
    line: int = 0
    source: str = ""


class TraceIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one stage's trace lies, relative to the run's folder."""

    stage: str  #: ``"torch"``, ``"forward"``, ``"dce"``, ..., ``"execution"``
    path: str
    direction: str = "forward"  #: ``"forward"`` or ``"backward"``
    lines: int = 0
    time_ms: float = 0.0
    costs: str = ""  #: path of the lines' costs (``thunderfx.profiling.costs.TraceCosts``), ``""`` where there are none


class SubgraphIndex(msgspec.Struct, frozen=True, omit_defaults=True):
    index: int
    traces: tuple[TraceIndex, ...] = ()
    forward_lines: int = 0
    forward_ops: int = 0
    backward_lines: int = 0
    backward_ops: int = 0
    fusions: int = 0
    saved_for_backward_bytes: int | None = None
    compile_ms: float = 0.0
    inputs: tuple[str, ...] = ()
    replaces: int | None = None
    code: str = ""  #: ``"forward (model.py:12)"``, the code object that Dynamo compiled
    reason: str = ""  #: why it was compiled again (the guard that failed), for a recompile
    fallbacks: tuple[Fallback, ...] = ()
    backward_status: str = ""  #: ``"ran"``, ``"compiled, never ran"``, ``"not compiled"``, ``"not needed"``


class ContenderResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What ``thunderfx bench`` measured of one compiler. Errors are relative, against eager in float64."""

    name: str
    timings: dict[str, Timing] = {}  #: ``first_call``, ``first_backward``, ``forward``, ``backward``, ``step``
    memory: dict[str, Reading] = {}
    graphs: int | None = None
    fallbacks: int = 0
    output_error: float | None = None
    gradient_error: float | None = None
    error: str = ""  #: why it was given up


class StepPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a step, in milliseconds; ``detail`` says what it holds and how it was measured."""

    name: str
    time_ms: float
    detail: str = ""


class StepParts(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plain step taken apart: means over the middle half of ``steps`` steps, so that the parts sum to ``step_ms``."""

    step_ms: float
    steps: int
    parts: tuple[StepPart, ...]


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bool
    lines: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    schema_version: int = SCHEMA_VERSION
    name: str = ""
    created: str = ""  #: ISO 8601 with zone
    status: str = "complete"  #: ``"complete"``, ``"interrupted"``, ``"failed"``
    error: str = ""
    command: tuple[str, ...] = ()
    target: str = ""
    mode: str = "model"  #: ``"model"``, ``"script"`` or ``"bench"``
    options: dict[str, str | int | float | bool | None] = {}
    environment: Environment = Environment()
    subgraphs: tuple[SubgraphIndex, ...] = ()
    graph_breaks: tuple[GraphBreak, ...] = ()
    timings: dict[str, Timing] = {}  #: ``first_call``, ``forward``, ``backward``, ``step``, ``import``, ``load``
    compile_stages_ms: dict[str, float] = {}  #: first call split by stage, in pipeline order
    memory: Memory = Memory()
    warnings: tuple[str, ...] = ()
    check: CheckResult | None = None
    contenders: tuple[ContenderResult, ...] = ()
    step_parts: StepParts | None = None  #: where a step's time went, next to the programs of the subgraphs
    ceilings: Ceilings | None = None  #: of the device, for the work of lines


def edited(data: bytes, **changes: str) -> bytes:
    """The content of a ``run.json`` with fields changed; what this version does not know of is kept.

    Raises ``msgspec.DecodeError`` where it is no JSON object.
    """
    fields: dict[str, Any] = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    return msgspec.json.format(msgspec.json.encode(fields | changes))
