"""``thunderfx runs`` and ``thunderfx runs rm``."""

from __future__ import annotations

import json

import pytest
from stored import EVIL, on_terminal, printed, store_run, thunderfx

from thunderfx_cli.store import Store


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def listed(store) -> list[str]:
    return [row["id"] for row in json.loads(printed("runs", "--json", "--store", str(store)))]


def test_the_list_is_newest_first(store):
    first = store_run(store, name="base")
    second = store_run(store, timings={})
    header, *rows = printed("runs", "--store", str(store), COLUMNS="20").splitlines()
    assert header.split() == ["id", "name", "when", "target", "device", "status", "step"]
    assert rows[0].split() == [second, "2026-12-01", "14:22:33", "model.py", "cpu", "complete", "-"]
    assert rows[1].split() == [first, "base", "2026-12-01", "14:22:33", "model.py", "cpu", "complete", "2.00", "ms"]


def test_json(store):
    run = store_run(store, name="base")
    (row,) = json.loads(printed("runs", "--json", "--store", str(store)))
    assert row == {
        "id": run,
        "name": "base",
        "created": "2026-12-01T14:22:33+01:00",
        "target": "model.py",
        "device": "cpu",
        "status": "complete",
        "step_ms": 2.0,
    }


def test_an_empty_store(store):
    assert printed("runs", "--store", str(store)) == "no runs yet; store one with: thunderfx run model.py\n"
    assert listed(store) == []
    assert not store.exists()


def test_the_store_is_found_upwards(tmp_path):
    run = store_run(tmp_path / ".thunderfx")
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert run in printed("runs", cwd=tmp_path / "a" / "b")


def test_a_damaged_run_is_named_and_can_be_removed(store):
    good, bad = store_run(store), store_run(store)
    (store / "runs" / bad / "run.json").write_text("{")
    done = thunderfx("runs", "--store", str(store))
    assert done.returncode == 0
    assert good in done.stdout and bad not in done.stdout
    assert done.stderr.startswith(f"warning: run {bad} is damaged: run.json: ")
    assert printed("runs", "rm", bad, "--store", str(store)) == f"removed {bad}\n"
    assert not (store / "runs" / bad).exists()


def test_text_of_a_run_is_shown_harmlessly(store):
    store_run(store, name=EVIL)
    assert "h = f()\\x1b[31m[bold]x[/bold]\\n\\x9b2J" in printed("runs", "--store", str(store))
    assert not {"\x1b", "\x9b"} & set(printed("runs", "--json", "--store", str(store)))
    evil = store / "runs" / "20260101-000000-\x1b]0;x\x07"
    evil.mkdir()
    done = thunderfx("runs", "--store", str(store))
    assert "warning: run 20260101-000000-\\x1b]0;x\\x07 cannot be read" in done.stderr
    assert "\x1b" not in done.stderr
    assert printed("runs", "rm", "20260101", "--store", str(store)) == "removed 20260101-000000-\\x1b]0;x\\x07\n"


def test_removing_by_position_name_and_prefix(store):
    named, other, last = store_run(store, name="base"), store_run(store), store_run(store)
    out = printed("runs", "rm", "base", "@1", "--store", str(store))
    assert out.splitlines() == [f"removed {named}", f"removed {last}"]
    assert listed(store) == [other]


def test_nothing_is_removed_when_one_name_is_wrong(store):
    run = store_run(store)
    done = thunderfx("runs", "rm", run, "nonsense", "--store", str(store))
    assert done.returncode == 4
    assert "no run is called 'nonsense'" in done.stderr
    assert listed(store) == [run]


def test_a_run_given_twice_is_removed_once(store):
    run = store_run(store)
    assert printed("runs", "--store", str(store), "rm", run, "@1") == f"removed {run}\n"


def test_a_terminal_is_asked_first(store):
    run = store_run(store)
    code, shown = on_terminal("runs", "rm", "@1", "--store", str(store), keys=b"n\n")
    assert code == 1
    assert f"Remove 1 run: {run}? [y/N]" in shown.replace("\n", "")
    assert [entry.folder.name for entry in Store(store).entries()] == [run]
    assert on_terminal("runs", "rm", "@1", "--yes", "--store", str(store))[0] == 0
    assert Store(store).entries() == []
