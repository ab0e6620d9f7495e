"""Which runs make a series, and what is said of the others."""

from __future__ import annotations

import pytest

from thunderfx_cli.errors import UsageError
from thunderfx_cli.history import figure, history
from thunderfx_cli.render.history_view import render_history
from thunderfx_cli.store.schema import Environment, GraphBreak, Memory, Reading, Run, SubgraphIndex, Timing


def run(number: int, value: float, **fields: object) -> Run:
    defaults: dict[str, object] = {
        "created": f"2026-11-01T00:{number // 60:02d}:{number % 60:02d}+01:00",
        "target": "model.py",
        "environment": Environment(device="cpu", torch="2.13.0", git_commit=f"{number:07x}rest"),
        "timings": {"step": Timing((value * 2, value, value / 2))},
    }
    return Run(f"r{number:03d}", **(defaults | fields))


def runs(*values: float) -> list[Run]:
    """Newest first, as a store lists them."""
    return [run(number, value) for number, value in enumerate(values)][::-1]


LEVELS = [10.0, 10.1, 9.9, 10.05, 9.95, 10.02] * 2 + [13.0, 13.1, 12.9, 13.05, 12.95, 13.02]


def test_a_series_is_oldest_first_with_its_change():
    found = history(runs(*LEVELS), "step_time")
    (series,) = found.series
    assert (found.unit, [point.value for point in series.points]) == ("ms", LEVELS)
    (change,) = series.changes
    assert (change.run, change.commit, change.at.index) == ("r012", f"{12:07x}rest", 12)
    assert (change.at.before, change.at.after) == pytest.approx((10.01, 13.01))


def test_other_devices_inputs_and_options_are_series_of_their_own():
    others = [
        run(50, 1.0, environment=Environment(device="cuda:0")),
        run(51, 1.0, options={"inputs": "x=4x64"}),
        run(52, 1.0, subgraphs=(SubgraphIndex(0, inputs=("w.weight: f32[9]", "x: f32[8, 64]")),)),
        run(53, 1.0, options={"steps": 99, "backend": "thunderfx"}),
    ]
    found = history([run(99, 10.0), *others], "step_time")
    assert [[point.run for point in series.points] for series in found.series] == [
        ["r053", "r099"],
        ["r050"],
        ["r051"],
        ["r052"],
    ]
    lines = list(render_history(found, width=None))
    assert lines[-4:] == [
        "not in it, as what was run or where differs (3 other series):",
        "  1 run: cuda:0",
        "  1 run: inputs x=4x64",
        "  1 run: shapes x: f32[8, 64]",
    ]


def test_what_changed_around_a_change_is_named():
    values = runs(*LEVELS)
    newer = [run(20 + n, 13.0 + n / 100, environment=Environment(device="cpu", torch="2.14.0")) for n in range(6)]
    found = history([*newer[::-1], *values[6:]], "step_time")
    assert found.series[0].changes[0].surroundings == ("torch 2.13.0 -> 2.14.0",)


def test_exact_metrics_and_runs_without_the_metric():
    breaks = (GraphBreak("why"),)
    listed = [run(2, 1.0, graph_breaks=breaks), run(1, 1.0), run(0, 1.0, mode="bench")]
    found = history(listed, "graph_breaks")
    assert found.without == 1
    assert [change.run for change in found.series[0].changes] == ["r002"]
    assert "1 run without graph_breaks" in list(render_history(found, width=None))


def test_readings_have_their_unit_and_reasons_are_no_values():
    memory = Memory({"rss_peak_bytes": Reading(2048.0), "device_power_watts": Reading(None, "not supported")})
    found = history([run(0, 1.0, memory=memory)], "rss_peak_bytes")
    assert found.unit == "bytes"
    assert any("2.00 KiB" in line for line in render_history(found, width=None))
    assert figure(run(0, 1.0, memory=memory), "device_power_watts") is None


def test_an_unknown_metric_lists_those_that_there_are():
    with pytest.raises(UsageError, match="no run has it") as caught:
        history(runs(1.0), "nonsense")
    assert "step_time, graph_breaks" in caught.value.hint


def test_a_plot_has_the_width_and_a_line_at_each_change():
    found = history(runs(*LEVELS), "step_time")
    for width in (60, 80, 120):
        lines = list(render_history(found, width=width))
        assert max(map(len, lines[:20])) == width
        assert lines[0] == "step_time (ms) over 18 runs"
        plot = lines[3:19]
        assert sum("│" in line[8:-1] for line in plot) >= 12
        assert sum(line.count("•") for line in plot) >= 12
        labels = plot[-1].split()
        assert len(labels) >= 4 and set(labels) <= {point.commit[:7] for point in found.series[0].points}
    assert "change 1: 10.01 ms -> 13.01 ms (+30.0%), p = " in lines[-2][:50]


def test_text_of_a_run_is_harmless():
    found = history([run(0, 1.0, target="m\x1b[2J\n[bold]"), run(1, 1.0, target="\x9b")], "step_time")
    for width in (None, 80):
        text = "".join(render_history(found, width=width))
        assert not {"\x1b", "\x9b", "\n"} & set(text)
        assert "m\\x1b[2J\\n[bold]" in text
