"""``thunderfx traces`` over a stored run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from stored import EVIL, environment, on_terminal, printed, program, store_run, thunderfx
from thunderfx.trace import from_json

from thunderfx_cli.store import Store
from thunderfx_cli.store.schema import Run, SubgraphIndex


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    store_run(root)
    return str(root)


@pytest.fixture(scope="module")
def long_store(tmp_path_factory):
    root = tmp_path_factory.mktemp("long")
    writer = Store(root).new_run("model.py")
    trace = program("forward", *["sin"] * 3_000, source="h = " + "f(" * 100)
    writer.commit(Run(writer.id, subgraphs=(SubgraphIndex(0, (writer.add_trace(0, "forward", "execution", trace),)),)))
    return str(root)


def test_headings_traces_and_reasons_in_a_pipe(store):
    text = printed("traces", "--store", store)
    assert [line for line in text.splitlines() if line.startswith("# ")] == [
        "# subgraph 0 forward, stage execution, 2 lines, forward (model.py:12)",
        "# inputs: x: f32[4, 64]",
        "# run by torch 2 lines",
        "# subgraph 0 backward, stage execution, 1 line, forward (model.py:12)",
        "# run by torch 1 line",
        "# subgraph 1 forward, stage execution, 1 line",
        "# recompiled: replaces subgraph 0: guard on h = f(h)",
        "# run by torch 1 line",
        "# subgraph 1 backward: compiled, never ran",
        "# subgraph 2 forward: fell back: no such op",
        "# subgraph 2 backward: fell back: no such op",
    ]
    assert program("backward", "neg").python(comments=True) in text
    assert "\x1b" not in text


def test_one_direction_and_one_subgraph(store):
    text = printed("traces", "--backward", "--subgraph", "0", "--store", store)
    assert "def backward" in text and "def forward" not in text and "subgraph 1" not in text
    assert "def backward" not in printed("traces", "--forward", "--store", store)
    both = printed("traces", "--store", store)
    assert both == printed("traces", "--both", "--store", store)
    assert both == printed("traces", "--forward", "--backward", "--store", store)


def test_raw_is_the_program_and_reasons_go_to_stderr(store):
    done = thunderfx("traces", "--raw", "--backward", "--store", store)
    assert done.stdout == program("backward", "neg").python()
    assert done.stderr.splitlines() == [
        "subgraph 1 backward: compiled, never ran",
        "subgraph 2 backward: fell back: no such op",
    ]


def test_json_holds_the_traces(store):
    rows = json.loads(printed("traces", "--json", "--subgraph", "0", "--store", store))
    assert [(row["subgraph"], row["direction"], row["stage"]) for row in rows] == [
        (0, "forward", "execution"),
        (0, "backward", "execution"),
    ]
    assert from_json(json.dumps(rows[1]["trace"])) == program("backward", "neg")


def test_stages(store):
    assert [line.split() for line in printed("traces", "--list-stages", "--store", store).splitlines()] == [
        ["subgraph", "0", "forward", "torch", "1", "line", "0", "us"],
        ["subgraph", "0", "forward", "execution", "2", "lines", "500", "us"],
        ["subgraph", "0", "backward", "execution", "1", "line", "1.50", "ms"],
        ["subgraph", "1", "forward", "execution", "1", "line", "0", "us"],
    ]
    rows = json.loads(printed("traces", "--list-stages", "--json", "--backward", "--store", store))
    assert rows == [{"subgraph": 0, "direction": "backward", "stage": "execution", "lines": 1, "time_ms": 1.5}]


def test_a_stage_that_only_one_direction_has(store):
    text = printed("traces", "--stage", "torch", "--subgraph", "0", "--store", store)
    assert "stage torch, 1 line" in text
    assert text.endswith("# subgraph 0 backward: no trace after stage torch; there are execution\n")


@pytest.mark.parametrize(
    ("option", "value", "offered"), [("--stage", "fused", "torch, execution"), ("--subgraph", "7", "0, 1, 2")]
)
def test_what_the_run_does_not_have_is_a_usage_error(store, option, value, offered):
    done = thunderfx("traces", option, value, "--store", store)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {option} {value}: this run has the ")
    assert offered in done.stderr


def test_no_run(tmp_path):
    done = thunderfx("traces", "--store", str(tmp_path))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"error: there are no runs in {tmp_path}\n  try: Store a run with: thunderfx run model.py\n"


def test_a_run_that_compiled_nothing(tmp_path):
    store_run(tmp_path, subgraphs=())
    done = thunderfx("traces", "--store", str(tmp_path))
    assert done.returncode == 4
    assert "nothing was compiled in this run" in done.stderr


def test_stored_text_is_shown_harmlessly(tmp_path):
    store_run(tmp_path, source=EVIL)
    text = printed("traces", "--store", str(tmp_path))
    assert "| h = f()\\x1b[31m[bold]x[/bold]\\n\\x9b2J\n" in text
    for option in ("--json", "--raw", "--list-stages"):
        text += thunderfx("traces", option, "--store", str(tmp_path)).stdout
    assert not any(ch in text for ch in ("\x1b", "\x9b"))
    code, shown = on_terminal("traces", "--subgraph", "0", "--store", str(tmp_path), NO_COLOR="1", PAGER="cat")
    assert code == 0
    assert "[bold]x[/bold]" in shown and "\x1b[31m" not in shown and "\x9b" not in shown


def test_a_pipe_that_cannot_hold_the_text_gets_escapes(tmp_path):
    store_run(tmp_path, source="h = é(h)")
    assert "h = \\xe9(h)" in printed("traces", "--store", str(tmp_path), PYTHONIOENCODING="ascii")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_stops_early_is_no_error(long_store, unbuffered):
    process = subprocess.Popen(
        [sys.executable, "-m", "thunderfx_cli", "traces", "--store", long_store],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED=unbuffered),
    )
    assert process.stdout.readline().startswith(b"# subgraph 0")
    process.stdout.close()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == b""


def test_lines_are_never_broken(long_store):
    source = "f(" * 100
    assert source in printed("traces", "--store", long_store, COLUMNS="40")
    assert source in on_terminal("traces", "--store", long_store, PAGER="head -c 5000", NO_COLOR="1")[1]


def test_a_terminal_gets_colour_unless_told_not_to(store):
    code, shown = on_terminal("traces", "--backward", "--subgraph", "0", "--store", store)
    assert code == 0
    assert "\x1b[" in shown and "backward" in shown
    assert "\x1b[" not in on_terminal("traces", "--backward", "--subgraph", "0", "--store", store, NO_COLOR="1")[1]


def test_only_long_output_is_paged(store, long_store):
    pager = "sed -n 's/^/PAGED /;1p'"
    assert on_terminal("traces", "--store", long_store, PAGER=pager)[1].startswith("PAGED ")
    assert "PAGED" not in on_terminal("traces", "--backward", "--subgraph", "0", "--store", store, PAGER=pager)[1]
    assert "PAGED" not in printed("traces", "--store", long_store, PAGER=pager)
