"""Stored runs of any size, made by repeating a real trace; nothing is compiled.

The copies are chained: where an input of the trace has the type of an output, each copy reads the one before it, so
that the long trace has a dataflow to align, and every copy has module paths of its own, as layers of a model have.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from thunderfx.trace import BoundSymbol, Origin, TraceCtx, Variable, check
from thunderfx.trace.bound_symbol import DEL, names_in

from thunderfx_cli.store import Store
from thunderfx_cli.store.schema import Environment, Run, SubgraphIndex, Timing


def repeated(trace: TraceCtx, lines: int, *, changed: float = 0.0) -> TraceCtx:
    """``trace`` again and again until it has ``lines`` lines; a part ``changed`` of them, evenly spread, computes
    something else."""
    inputs = {var.name: var for var in trace.inputs}
    types = {var.name: var.type for line in trace.bound_symbols for var in line.defines()}
    source, target = _joint(trace, types)
    kept = [line for line in trace.bound_symbols if line.symbol != DEL or not inputs.keys() & set(line.uses())]
    out: list[BoundSymbol] = []
    origins: list[Origin] = []
    previous = ""
    every = round(1 / changed) if changed else 0
    copy = 0
    rename: dict[str, str] = {}
    while len(out) < lines:
        rename = {name: f"{name}_{copy}" for name in types}
        if previous:
            rename[target] = previous
        previous = rename.get(source, "")
        base = len(origins)
        origins += [
            msgspec.structs.replace(o, module=f"layers.{copy}.{o.module}" if o.module else "") for o in trace.origins
        ]
        for line in kept[: lines - len(out)]:
            new = line.renamed(rename)
            renamed = tuple(
                None if var is None else Variable(rename[var.name], var.type, var.source) for var in line.outputs
            )
            origin = None if line.origin is None else line.origin + base
            new = msgspec.structs.replace(new, outputs=renamed, origin=origin)
            if every and len(out) % every == every - 1 and line.symbol != DEL:
                new = msgspec.structs.replace(new, symbol=f"{new.symbol}_changed")
            out.append(new)
        copy += 1
    defined = {var.name for line in out for var in line.defines()}
    deleted = {name for line in out if line.symbol == DEL for name in line.uses()}
    outputs = trace.outputs
    if not all(rename.get(name, name) in (defined | inputs.keys()) - deleted for name in names_in(outputs)):
        outputs = None  # the last copy was cut short
    else:
        from thunderfx.trace.bound_symbol import map_names

        outputs = map_names(outputs, rename)
    result = trace.replace(bound_symbols=tuple(out), origins=tuple(origins), outputs=outputs, fusions=())
    check(result)
    return result


def _joint(trace: TraceCtx, types: dict[str, object]) -> tuple[str, str]:
    """An output and an input of one type, by which copies are chained; empty where there are none."""
    for name in names_in(trace.outputs):
        for var in trace.inputs:
            if types.get(name) == var.type:
                return name, var.name
    return "", ""


def store_big_run(store: Store, trace: TraceCtx, name: str) -> Path:
    """A run whose one subgraph has ``trace`` as its forward."""
    writer = store.new_run("big")
    index = writer.add_trace(0, "forward", "execution", trace)
    graph = SubgraphIndex(0, (index,), forward_lines=len(trace.bound_symbols), code="forward (big.py:1)")
    timings = {"step": Timing(tuple(100.0 + i % 7 for i in range(20)))}
    return writer.commit(
        Run(
            writer.id,
            name=name,
            target="big.py",
            environment=Environment(device="cpu"),
            subgraphs=(graph,),
            timings=timings,
        )
    )
