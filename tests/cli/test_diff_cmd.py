"""``thunderfx diff`` over stored runs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import typer
from thunderfx.trace import BoundSymbol, ListArg, Origin, Ref, TensorType, TraceCtx, Variable
from typer.testing import CliRunner

from thunderfx_cli.commands.diff import diff
from thunderfx_cli.comparison import pair_by_similarity
from thunderfx_cli.errors import UsageError
from thunderfx_cli.store import Store
from thunderfx_cli.store.schema import Environment, GraphBreak, Memory, Reading, Run, SubgraphIndex, Timing

F32 = TensorType("float32", (4, 64))
app = typer.Typer()
app.command()(diff)


def program(*symbols: str, prefix: str = "t", source: str = "h = act(h)", name: str = "forward") -> TraceCtx:
    lines, last = [], f"{prefix}x"
    for i, symbol in enumerate(symbols):
        out = f"{prefix}{i}"
        lines.append(BoundSymbol(f"aten.{symbol}.default", (Ref(last),), outputs=(Variable(out, F32),), origin=i))
        last = out
    origins = tuple(Origin(f"net.{i}", "f", "/home/me/model.py", 12 + i, source) for i in range(len(symbols)))
    return TraceCtx(name, (Variable(f"{prefix}x", F32, "x"),), tuple(lines), ListArg((Ref(last),)), origins)


def store_run(root: Path, *subgraphs: dict[str, TraceCtx], step: float = 10.0, **more: object) -> str:
    writer = Store(root).new_run("model.py")
    indices = []
    for number, traces in enumerate(subgraphs):
        written = tuple(writer.add_trace(number, way, "execution", trace) for way, trace in traces.items())
        lines = {f"{way}_lines": len(trace.bound_symbols) for way, trace in traces.items()}
        indices.append(SubgraphIndex(number, written, code="forward (model.py:12)", **lines))
    fields: dict[str, object] = {
        "environment": Environment(device="cpu", torch="2.13.0", threads=2),
        "timings": {"step": Timing(tuple(step + 0.01 * i for i in range(10)))},
        "memory": Memory({"saved_for_backward_bytes": Reading(2048.0)}),
    }
    writer.commit(Run(writer.id, subgraphs=tuple(indices), **(fields | more)))
    return writer.id


def printed(root: Path, *args: str) -> str:
    result = CliRunner().invoke(app, [*args, "--store", str(root)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_equal_runs_have_no_differences(tmp_path: Path) -> None:
    a = store_run(tmp_path, {"forward": program("mm", "relu"), "backward": program("neg", prefix="g")})
    b = store_run(tmp_path, {"forward": program("mm", "relu", prefix="u"), "backward": program("neg", prefix="h")})
    out = printed(tmp_path, a, b)
    assert "traces: no differences" in out
    assert "within noise" in out


def test_a_changed_activation_shows_its_lines_and_nothing_else(tmp_path: Path) -> None:
    a = store_run(tmp_path, {"forward": program("mm", "relu", "exp", "exp"), "backward": program("neg")})
    b = store_run(tmp_path, {"forward": program("mm", "gelu", "exp", "exp", prefix="u"), "backward": program("neg")})
    out = printed(tmp_path, a, b)
    assert out.split("\n\n")[1].splitlines() == [
        "subgraph 0 forward (model.py:12), forward: 1 removed, 1 added",
        "    # net.0 | model.py:12 | h = act(h)",
        '    u0 = aten.mm.default(ux)  # u0: "cpu f32[4, 64]"',
        "    # net.1 | model.py:13 | h = act(h)",
        '  - t1 = aten.relu.default(t0)  # t1: "cpu f32[4, 64]"',
        '  + u1 = aten.gelu.default(u0)  # u1: "cpu f32[4, 64]"',
        "    # net.2 | model.py:14 | h = act(h)",
        '    u2 = aten.exp.default(u1)  # u2: "cpu f32[4, 64]"',
    ]
    assert "backward: no differences" in out


def test_figures_have_change_and_verdict(tmp_path: Path) -> None:
    a = store_run(tmp_path, {"forward": program("mm")}, step=10.0)
    b = store_run(
        tmp_path,
        {"forward": program("mm")},
        step=20.0,
        memory=Memory({"saved_for_backward_bytes": Reading(1024.0)}),
        graph_breaks=(GraphBreak("print"),),
    )
    rows = {line.split("  ")[0]: line.split() for line in printed(tmp_path, a, b).splitlines() if line}
    assert rows["step"][-6:] == ["20.045", "ms", "+10.000", "ms", "+99.6%", "worse"]
    assert rows["saved for backward"][-6:] == ["1.0", "KiB", "-1.0", "KiB", "-50.0%", "better"]
    assert rows["graph breaks"][-5:] == ["0", "1", "+1", "-", "worse"]


def test_another_device_makes_timings_not_comparable(tmp_path: Path) -> None:
    a = store_run(tmp_path, {"forward": program("mm")})
    b = store_run(tmp_path, {"forward": program("mm")}, step=30.0, environment=Environment(device="cuda:0", threads=2))
    out = printed(tmp_path, a, b)
    assert "warning: the runs' environments differ; their timings are not comparable" in out
    assert "cpu -> cuda:0" in " ".join(out.split())
    assert "not comparable" in next(line for line in out.splitlines() if line.startswith("step"))


def test_added_subgraphs_and_missing_directions_are_said(tmp_path: Path) -> None:
    a = store_run(tmp_path, {"forward": program("mm", "relu")})
    b = store_run(
        tmp_path, {"forward": program("sin", "cos")}, {"forward": program("mm", "relu"), "backward": program("neg")}
    )
    out = printed(tmp_path, a, b)
    assert "subgraph 0 forward (model.py:12): added (2 lines)" in out
    assert "subgraph 0 -> 1 forward (model.py:12), forward: no differences" in out
    assert "backward: no execution trace before" in out


def test_subgraph_and_stage_that_no_run_has_are_usage_errors(tmp_path: Path) -> None:
    a = store_run(tmp_path, {"forward": program("mm")})
    b = store_run(tmp_path, {"forward": program("mm")})
    for option, value in (("--subgraph", "7"), ("--stage", "fused")):
        with pytest.raises(UsageError, match=value):
            printed(tmp_path, a, b, option, value)


def test_json_holds_the_differences(tmp_path: Path) -> None:
    a = store_run(tmp_path, {"forward": program("mm", "relu", "exp")})
    b = store_run(tmp_path, {"forward": program("mm", "gelu", "exp")})
    data = json.loads(printed(tmp_path, a, b, "--json"))
    assert (data["before"], data["after"], data["traces_equal"]) == (a, b, False)
    found = data["subgraphs"][0]["directions"][0]["diff"]
    assert [entry["kind"] for entry in found["entries"]] == ["removed", "added"]
    assert (found["added"], found["removed"], found["changed"]) == (1, 1, 0)
    step = next(metric for metric in data["metrics"] if metric["name"] == "step")
    assert step["verdict"] == "within noise"


def test_stored_text_is_shown_harmlessly(tmp_path: Path) -> None:
    evil = "\x1b[31m[bold]x[/bold]\n\x9b2J"
    a = store_run(tmp_path, {"forward": program("mm", "relu", source=evil)}, graph_breaks=(GraphBreak(evil),))
    b = store_run(tmp_path, {"forward": program("mm", "gelu", source=evil)}, environment=Environment(device=evil))
    out = printed(tmp_path, a, b)
    assert "\x1b" not in out and "\x9b" not in out
    assert "\\x1b[31m[bold]x[/bold]\\n\\x9b2J" in out


def test_subgraphs_pair_by_similarity_then_by_order() -> None:
    x, y, z = Counter("aab"), Counter("cd"), Counter("ef")
    assert pair_by_similarity([x, y], [y, x]) == [(1, 0), (0, 1)]
    assert pair_by_similarity([x], [z]) == [(0, 0)]
    assert pair_by_similarity([x], [z, x]) == [(0, 1), (None, 0)]
