"""Finding and reading runs; what lies in a store is data from anywhere."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from thunderfx.trace import BoundSymbol, ListArg, Literal, Ref, TensorType, TraceCtx, Variable

from thunderfx_cli.errors import EXIT_NO_RUN, RunDataError
from thunderfx_cli.store import Store
from thunderfx_cli.store.schema import SCHEMA_VERSION, Run, SubgraphIndex, TraceIndex

F32 = TensorType("float32", (2,))


def program(name: str = "forward", **fields: object) -> TraceCtx:
    line = BoundSymbol(
        **{"symbol": "aten.sin.default", "args": (Ref("x"),), "outputs": (Variable("a", F32),), **fields}
    )
    return TraceCtx(name, (Variable("x", F32),), (line,), ListArg((Ref("a"),)))


def write(store: Store, run_id: str, **fields: object) -> Path:
    """A run of a chosen id, so that order and prefixes are known."""
    writer = store.new_run("model.py")
    writer.id = run_id
    return writer.commit(Run(run_id, **fields))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    for day, name in ((1, "base"), (2, "base"), (3, "")):
        write(store, f"2026120{day}-100000-mlp-aa0{day}", name=name)
    return store


def fails(store: Store, ref: str, message: str) -> RunDataError:
    with pytest.raises(RunDataError, match=message) as caught:
        store.resolve(ref)
    assert caught.value.exit_code == EXIT_NO_RUN
    return caught.value


@pytest.mark.parametrize(
    ("ref", "day"), [("@1", 3), ("@3", 1), ("20261202", 2), ("20261201-100000-mlp-aa01", 1), ("base", 2)]
)
def test_names_of_a_run(store, ref, day):
    assert store.resolve(ref).run.id == f"2026120{day}-100000-mlp-aa0{day}"


def test_an_ambiguous_prefix_lists_its_matches(store):
    fails(store, "202612", "any of 3 runs: 20261203-100000-mlp-aa03, 20261202")


def test_an_unknown_name_suggests(store):
    assert "Did you mean base?" in fails(store, "bsae", "no run is called 'bsae'").hint
    assert "20261203-100000-mlp-aa03" in fails(store, "20261203-100001-mlp-aa03", "no run is called").hint


@pytest.mark.parametrize("ref", ["@0", "@x", "@", "@-1"])
def test_what_is_no_position(store, ref):
    fails(store, ref, "not a position")


def test_a_position_beyond_the_last(store):
    fails(store, "@4", "holds 3 readable runs")


def test_an_empty_store_says_how_to_fill_it(tmp_path):
    assert "thunderfx run model.py" in fails(Store(tmp_path / "none"), "@1", "no runs in").hint


def test_where_the_store_is(tmp_path, monkeypatch):
    inner = tmp_path / "project" / "src"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.delenv("THUNDERFX_HOME", raising=False)
    assert Store.find().root == inner / ".thunderfx"
    (tmp_path / "project" / ".thunderfx").mkdir()
    assert Store.find().root == tmp_path / "project" / ".thunderfx"
    monkeypatch.setenv("THUNDERFX_HOME", str(tmp_path / "home"))
    assert Store.find().root == tmp_path / "home"
    assert Store.find(tmp_path / "given").root == tmp_path / "given"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "damaged"),
        (b"[1]", "damaged"),
        (b'{"id": 7}', "damaged"),
        (b'{"id": "x", "subgraphs": [{"index": "\xff"}]}', "damaged"),
        (b"[" * 100_000, "damaged"),
        (None, "cannot be read: No such file"),
    ],
    ids=["empty", "array", "type", "bytes", "deep", "none"],
)
def test_a_damaged_run_is_named_and_the_others_stay(store, content, problem):
    broken = store.runs / "20261209-100000-mlp-bad0"
    broken.mkdir()
    if content is not None:
        (broken / "run.json").write_bytes(content)
    first, *others = store.entries()
    assert first.run is None
    assert broken.name in first.problem and problem in first.problem
    assert [entry.run is not None for entry in others] == [True, True, True]
    assert store.resolve("@1").run.id.startswith("20261203")
    fails(store, broken.name, problem)
    store.remove(store.locate(broken.name))
    assert len(store.entries()) == 3


def test_a_newer_schema_is_refused_by_name(store):
    folder = write(store, "20261208-100000-new-aa08", schema_version=SCHEMA_VERSION + 1)
    error = fails(store, folder.name, f"schema version {SCHEMA_VERSION + 1}; this thunderfx reads up to")
    assert error.hint == "Update thunderfx."


def test_fields_of_a_later_minor_change_are_ignored(store):
    folder = store.resolve("@1").folder
    (folder / "run.json").write_bytes(msgspec.json.encode({"id": "x", "name": "later", "unheard_of": [1]}))
    assert store.resolve("later").run.id == folder.name  # the folder's name is the id


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret.json", "subgraphs/link.json", "nul\0l", "x" * 5000])
def test_a_trace_outside_the_run_is_refused(store, path):
    stored = store.resolve("@1")
    secret = store.root / "secret.json"
    secret.write_bytes(program().to_json())
    (stored.folder / "subgraphs").mkdir(exist_ok=True)
    (stored.folder / "subgraphs" / "link.json").symlink_to(secret)
    with pytest.raises(RunDataError, match=r"leaves the run's folder|not a path|too long"):
        stored.load_trace(TraceIndex("execution", path))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{}", "damaged: not a trace"),
        (program("import os").to_json(), "is not a name"),
        (program(args=(Literal("dtype", "x; import os"),)).to_json(), "not the name of a torch dtype"),
    ],
    ids=["json", "name", "literal"],
)
def test_a_damaged_trace_is_named(store, data, problem):
    stored = store.resolve("@1")
    (stored.folder / "bad.json").write_bytes(data)
    with pytest.raises(RunDataError, match=f"bad.json.*{problem}"):
        stored.program(TraceIndex("execution", "bad.json"))


def test_traces_are_chosen_by_direction_subgraph_and_stage(store):
    writer = store.new_run("model.py")
    graphs = tuple(
        SubgraphIndex(
            number,
            tuple(
                writer.add_trace(number, way, stage, program(way))
                for way in ("forward", "backward")
                for stage in ("dce", "execution")
            ),
        )
        for number in (0, 1)
    )
    writer.commit(Run(writer.id, subgraphs=graphs))
    stored = store.resolve(writer.id)

    def chosen(*args: object) -> list[str]:
        return [f"{graph.index} {index.direction} {index.stage}" for graph, index in stored.traces(*args)]

    assert chosen() == [f"{n} {way} execution" for n in (0, 1) for way in ("forward", "backward")]
    assert chosen("backward", 1, "dce") == ["1 backward dce"]
    assert stored.load_trace(graphs[1].traces[3]) == program("backward")


def test_a_run_that_is_removed_while_it_is_listed(store, monkeypatch):
    gone = store.resolve("@2").folder
    store.remove(gone)
    entry = SimpleNamespace(name=gone.name, path=str(gone), is_dir=lambda: True, stat=gone.stat)
    listed = [*os.scandir(store.runs), entry]
    monkeypatch.setattr("thunderfx_cli.store.store.os.scandir", lambda _: listed)
    assert [entry.run is not None for entry in store.entries()] == [True, False, True]
