"""From what was measured to a stored run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from thunderfx.profiling.costs import Ceilings, TraceCosts
from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL

from thunderfx_cli.running.measured import Measured
from thunderfx_cli.running.request import Request
from thunderfx_cli.store import RunWriter
from thunderfx_cli.store.schema import (
    Environment,
    Fallback,
    GraphBreak,
    Memory,
    Reading,
    Run,
    SubgraphIndex,
    Timing,
    TraceIndex,
)


def record_run(
    request: Request,
    measured: Measured,
    writer: RunWriter,
    *,
    mode: str,
    created: datetime,
    environment: Environment,
    status: str,
    error: str,
    breaks: Iterable[Any],
) -> Run:
    """Write the traces and return what ``run.json`` is to hold."""
    warnings = list(measured.warnings)
    stored_breaks = graph_breaks(breaks)
    if not measured.subgraphs and mode != "bench":
        warnings.append(_nothing_compiled(mode, stored_breaks))
    costs = [_costs(info, measured) for info in measured.subgraphs]
    return Run(
        id=writer.id,
        name=request.name,
        created=created.isoformat(timespec="seconds"),
        status=status,
        error=error,
        command=tuple(sys.argv),
        target=request.target_text,
        mode=mode,
        options=request.stored_options(),
        environment=environment,
        subgraphs=record_subgraphs(measured, writer, costs),
        graph_breaks=stored_breaks,
        timings=timings(measured),
        compile_stages_ms=compile_stages(measured),
        memory=memory(measured, writer),
        warnings=tuple(warnings),
        check=measured.check,
        contenders=tuple(measured.contenders),
        step_parts=measured.step_parts,
        ceilings=ceilings(measured, costs),
    )


def _nothing_compiled(mode: str, breaks: tuple[GraphBreak, ...]) -> str:
    if mode == "script":
        return "nothing was compiled: no call went through torch.compile or thunderfx"
    why = next(
        (line.strip() for item in breaks for line in item.reason.splitlines() if line.strip()), "it gave no reason"
    )
    return f"nothing was compiled, the model ran in eager: TorchDynamo made no graph of it ({why})"


def record_subgraphs(
    measured: Measured, writer: RunWriter, costs: Sequence[dict[str, TraceCosts]]
) -> tuple[SubgraphIndex, ...]:
    """Write every stage's trace of every subgraph, its lines' costs by direction, and the final traces as text."""
    infos = zip(measured.subgraphs, costs, strict=True)
    return tuple(_record(number, info, writer, found) for number, (info, found) in enumerate(infos))


def _costs(info: Any, measured: Measured) -> dict[str, TraceCosts]:
    """Costs of the subgraph's lines by direction."""
    from thunderfx_cli.running.line_steps import costs_of

    if measured.lines is not None:
        return measured.lines.costs(info)
    if info.programs:
        return costs_of(info, {}, None, "no steps after the first call were asked for")
    return costs_of(info, {}, None, "another compiler runs these lines as a whole")


def ceilings(measured: Measured, costs: Sequence[dict[str, TraceCosts]]) -> Ceilings | None:
    """Of the device whose lines were timed."""
    if measured.lines is None:
        return None
    from thunderfx_cli.running.ceilings import run_ceilings

    infos = zip(measured.subgraphs, costs, strict=True)
    pairs = [(info.trace(way, "execution"), found) for info, by_way in infos for way, found in by_way.items()]
    return run_ceilings(measured.lines.device, pairs)


def _record(number: int, info: Any, writer: RunWriter, costs: dict[str, TraceCosts]) -> SubgraphIndex:
    traces: list[TraceIndex] = []
    for direction, stages in info.stages.items():
        way = "forward" if direction == "graph" else direction
        for stage in stages:
            index = writer.add_trace(number, way, stage.name, stage.trace, stage.time_ms)
            if stage.name == "execution" and way in costs:
                index = msgspec.structs.replace(index, costs=writer.add_costs(number, way, costs[way]))
            traces.append(index)
    for direction in ("forward", "backward"):
        trace = info.trace(direction)
        if trace is not None:
            writer.write_text(number, f"{direction}.py", str(trace))
    forward, backward = info.forward, info.backward
    return SubgraphIndex(
        index=number,
        traces=tuple(traces),
        forward_lines=_lines(forward),
        forward_ops=_ops(forward),
        backward_lines=_lines(backward),
        backward_ops=_ops(backward),
        fusions=sum(_fusions(trace) for trace in (forward, backward)),
        saved_for_backward_bytes=info.saved_for_backward_bytes,
        compile_ms=info.compile_ms,
        inputs=tuple(f"{name}: {kind}" for name, kind in info.inputs),
        replaces=info.replaces,
        reason=info.recompile_reason,
        code=info.code,
        fallbacks=tuple(Fallback(item.where, item.stage, item.reason) for item in info.fallbacks),
        backward_status=info.backward_status,
    )


def _lines(trace: TraceCtx | None) -> int:
    return len(trace.bound_symbols) if trace is not None else 0


def _ops(trace: TraceCtx | None) -> int:
    return sum(line.symbol != DEL for line in trace.bound_symbols) if trace is not None else 0


def _fusions(trace: TraceCtx | None) -> int:
    return sum(line.has_tag("fused") for line in trace.bound_symbols) if trace is not None else 0


def graph_breaks(breaks: Iterable[Any]) -> tuple[GraphBreak, ...]:
    """Graph breaks as stored, each distinct one once."""
    kept = dict.fromkeys((item.reason, item.file, item.line, item.source) for item in breaks)
    return tuple(GraphBreak(*fields) for fields in kept)


def timings(measured: Measured) -> dict[str, Timing]:
    return {name: Timing(tuple(samples)) for name, samples in measured.samples_ms.items()}


def memory(measured: Measured, writer: RunWriter) -> Memory:
    saved = [info.saved_for_backward_bytes for info in _current(measured) if info.saved_for_backward_bytes is not None]
    readings = dict(measured.readings)
    if saved:
        readings["saved_for_backward_bytes"] = Reading(float(sum(saved)), source="traces, at the first inputs' sizes")
    profile = writer.add_memory(measured.memory) if measured.memory is not None else ""
    return Memory(readings, measured.nvml, profile)


def _current(measured: Measured) -> list[Any]:
    """Subgraphs that no other one replaces."""
    return [
        info
        for backend in measured.backends
        for info in backend.subgraph_infos
        if not any(other.replaces == info.index for other in backend.subgraph_infos)
    ]


def compile_stages(measured: Measured) -> dict[str, float]:
    """Milliseconds of compilation by stage, over all subgraphs, in the order of the pipeline.

    ``Dynamo`` is Dynamo's own part, ``AOTAutograd`` what the backend did besides our stages, ``first execution`` the
    rest of the first call. Stages of a backward that was compiled when it first ran are no part of the first call.
    """
    backend = sum(info.compile_ms for info in measured.subgraphs)
    within, late = _stage_sums(measured, late=False), _stage_sums(measured, late=True)
    stages = {"Dynamo": max(0.0, measured.dynamo_ms - backend), "AOTAutograd": max(0.0, backend - sum(within.values()))}
    stages |= within
    for name, time_ms in late.items():
        stages[f"{name} (in first backward)"] = time_ms
    first = measured.samples_ms.get("first_call", [])
    if len(first) == 1 and first[0] > measured.dynamo_ms:
        stages["first execution"] = first[0] - measured.dynamo_ms
    return {name: time_ms for name, time_ms in stages.items() if time_ms}


def _stage_sums(measured: Measured, *, late: bool) -> dict[str, float]:
    sums: dict[str, float] = {}
    for info in measured.subgraphs:
        for name, time_ms in info.stage_times_ms.items():
            if late == (info.backward_compiled_late and name.startswith("backward:")):
                sums[name] = sums.get(name, 0.0) + time_ms
    return sums
