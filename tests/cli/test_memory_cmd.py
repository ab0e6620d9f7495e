"""``thunderfx memory``, as a user reads it."""

from __future__ import annotations

import json
import re

import pytest
from stored import EVIL, on_terminal, printed, store_run, thunderfx
from thunderfx.profiling.allocations.model import (
    Checkpoint,
    Group,
    Held,
    MemoryProfile,
    Peak,
    Phase,
    Place,
    Point,
    Saved,
    SavedTensor,
)

from thunderfx_cli.store import Store
from thunderfx_cli.store.schema import Memory, Run

MIB = 1 << 20


def profile(source: str = "h = f(h)") -> MemoryProfile:
    place = Place(0, "backward", 3, "aten.mm.default", "blocks.0.fc", "/home/me/model.py", 12, source)
    held = (Held("saved for backward", 3 * MIB, "t5", "cpu f32[4]", place), Held("parameters", MIB, "blocks.0.fc.w"))
    groups = (Group("saved for backward", "blocks.0.fc", 3 * MIB, 2), Group("parameters", "blocks.0.fc", MIB, 1))
    phases = (Phase("forward", 0, 5, 2 * MIB, 2 * MIB), Phase("backward", 5, 15, 5 * MIB, MIB))
    points = (Point(0, MIB), Point(5, 2 * MIB), Point(8, 5 * MIB), Point(15, MIB))
    tensors = (SavedTensor("t5", 2 * MIB, "cpu f32[4]", place), SavedTensor("t6", MIB, "", place))
    saved = Saved(3 * MIB, 2, "measured", 1, tensors, (Checkpoint("blocks.*", 2, 3 * MIB, 2 * MIB),))
    peak = Peak(5 * MIB, "an allocator", 4 * MIB, MIB, "backward", place, groups, held)
    return MemoryProfile(peak, phases, points, saved=saved)


def store(root, found: MemoryProfile) -> None:
    writer = Store(root).new_run("model.py")
    path = writer.add_memory(found)
    writer.commit(Run(writer.id, memory=Memory(profile=path)))


def test_peak_saved_and_checkpointing(tmp_path):
    store(tmp_path, profile())
    text = printed("memory", "--store", str(tmp_path))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "Peak of one step: 5.00 MiB" in lines
    assert "named below: 4.00 MiB (80.0 %), not named: 1.00 MiB" in lines
    where = "subgraph 0 backward, line 3: aten.mm.default | blocks.0.fc | model.py:12 | h = f(h)"
    assert f"reached in backward: {where}" in lines
    assert "saved for backward 3.00 MiB 60.0 % 2" in lines
    assert "blocks.0.fc 1.00 MiB 3.00 MiB 4.00 MiB" in lines
    assert "3.00 MiB saved for backward t5: cpu f32[4] blocks.0.fc | model.py:12 | h = f(h)" in lines
    assert "Saved for backward: 3.00 MiB in 2 tensors" in lines
    assert "not counted: 1 tensor of a size that the trace does not know" in lines
    assert "If a module were checkpointed (estimate)" in lines
    assert "blocks.* 2 3.00 MiB 2.00 MiB 66.7 %" in lines
    assert "backward 5.00 MiB 1.00 MiB 10.00 ms" in lines


def test_top_bounds_the_tables(tmp_path):
    store(tmp_path, profile())
    text = printed("memory", "--top", "1", "--store", str(tmp_path))
    assert "t5" in text and "t6" not in text
    assert "and 1 more tensor" in text


def test_json_holds_everything(tmp_path):
    store(tmp_path, profile())
    data = json.loads(printed("memory", "--json", "--store", str(tmp_path)))
    assert data["peak"]["measured_bytes"] == 5 * MIB
    assert data["points"][2] == [8.0, 5 * MIB, None]
    assert data["saved"]["checkpoints"][0]["module"] == "blocks.*"


def test_stored_text_moves_no_cursor(tmp_path):
    store(tmp_path, profile(EVIL))
    for option in ((), ("--json",)):
        text = printed("memory", *option, "--store", str(tmp_path))
        assert "\x1b" not in text and "\x9b" not in text
    assert "[bold]x[/bold]" in printed("memory", "--store", str(tmp_path))


def test_lines_fit_the_terminal(tmp_path):
    store(tmp_path, profile("x" * 300))
    code, shown = on_terminal("memory", "--store", str(tmp_path))
    assert code == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    largest = shown.split("Largest tensors at the peak")[1].split("Allocated")[0]
    saved = shown.split("measured\n")[1].split("If a module")[0]
    rows = [*largest.splitlines(), *saved.splitlines()]
    assert max(map(len, rows)) <= 60 and any(row.rstrip().endswith("...") for row in rows)


@pytest.mark.parametrize("content", [b"{", b'{"peak": 3}', b"\xff"])
def test_damaged_profile(tmp_path, content):
    store(tmp_path, profile())
    (file,) = tmp_path.glob("runs/*/memory.json.gz")
    file.write_bytes(content)
    done = thunderfx("memory", "--store", str(tmp_path))
    assert done.returncode == 4
    assert "memory.json.gz is damaged" in done.stderr


def test_a_run_without_profile_says_so(tmp_path):
    store_run(tmp_path)
    done = thunderfx("memory", "--store", str(tmp_path))
    assert done.returncode == 4
    assert "this run holds nothing about what held memory" in done.stderr
