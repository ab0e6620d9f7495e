"""Costs of lines beside a stored trace."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from thunderfx.profiling.costs import LineCost, TraceCosts
from thunderfx.trace import BoundSymbol, ListArg, Ref, TensorType, TraceCtx, Variable

from thunderfx_cli.errors import RunDataError
from thunderfx_cli.store import Store, StoredRun
from thunderfx_cli.store.schema import Run, SubgraphIndex, TraceIndex

F32 = TensorType("float32", (2,))
SINE = BoundSymbol("aten.sin.default", (Ref("x"),), outputs=(Variable("a", F32),))
TRACE = TraceCtx("forward", (Variable("x", F32),), (SINE,), ListArg((Ref("a"),)))
COSTS = TraceCosts(
    (LineCost(time_ms=0.5, moved_bytes=16, allocated_bytes=8, live_bytes=8),), steps=3, calls=1.0, whole_ms=0.6
)


def stored(tmp_path: Path, costs: TraceCosts | None) -> tuple[StoredRun, TraceIndex]:
    writer = Store(tmp_path).new_run("model.py")
    index = writer.add_trace(0, "forward", "execution", TRACE)
    if costs is not None:
        index = msgspec.structs.replace(index, costs=writer.add_costs(0, "forward", costs))
    writer.commit(Run(writer.id, subgraphs=(SubgraphIndex(0, (index,)),)))
    run = Store(tmp_path).resolve("@1")
    return run, run.run.subgraphs[0].traces[0]


def test_costs_come_back_as_they_were_written(tmp_path):
    run, index = stored(tmp_path, COSTS)
    found = run.load_costs(index, TRACE)
    assert found == COSTS
    assert found.lines_ms == 0.5


def test_a_run_without_costs_has_none(tmp_path):
    run, index = stored(tmp_path, None)
    assert index.costs == ""
    assert run.load_costs(index, TRACE) is None


def test_costs_of_another_trace_are_refused(tmp_path):
    run, index = stored(tmp_path, TraceCosts(()))
    with pytest.raises(RunDataError, match="its lines are not those of the trace"):
        run.load_costs(index, TRACE)


@pytest.mark.parametrize(
    ("path", "message"),
    [("../../../etc/passwd", "leaves the run's folder"), ("run.json", "is damaged"), ("none.json", "No such file")],
)
def test_costs_are_data_from_anywhere(tmp_path, path, message):
    run, index = stored(tmp_path, COSTS)
    with pytest.raises(RunDataError, match=message):
        run.load_costs(msgspec.structs.replace(index, costs=path), TRACE)
