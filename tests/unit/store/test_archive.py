"""Exported runs: what goes out comes back; what no run is made of is refused before anything is written."""

from __future__ import annotations

import stat
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from thunderfx.trace import BoundSymbol, ListArg, Ref, TensorType, TraceCtx, Variable

from thunderfx_cli.errors import EXIT_NO_RUN, EXIT_USAGE, CommandError, RunDataError
from thunderfx_cli.store import Store
from thunderfx_cli.store import archive as archives
from thunderfx_cli.store.archive import export_run, import_run, load_archive
from thunderfx_cli.store.compression import compress
from thunderfx_cli.store.schema import Run, SubgraphIndex

F32 = TensorType("float32", (4, 64))
RELU = TraceCtx(
    "forward",
    (Variable("x", F32, "x"),),
    (BoundSymbol("aten.relu.default", (Ref("x"),), outputs=(Variable("a", F32),)),),
    ListArg((Ref("a"),)),
)
RUN_JSON = b'{"id": "20261201-100000-mlp-aa01"}'


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def run(store: Store) -> Path:
    writer = store.new_run("model.py")
    index = writer.add_trace(0, "forward", "execution", RELU)
    writer.write_text(0, "forward.py", "text")
    return writer.commit(Run(writer.id, name="base", subgraphs=(SubgraphIndex(0, (index,)),)))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run.tfx"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_goes_out_and_comes_back(store, run, out, tmp_path):
    export_run(run, out)
    other = Store(tmp_path / "other")
    assert import_run(other, out) == (run.name, True)
    assert files(other.runs / run.name) == files(run)
    assert import_run(other, out) == (run.name, False)
    assert [path.name for path in other.runs.iterdir()] == [run.name]


def test_equal_runs_give_equal_files(run, out, tmp_path):
    export_run(run, out)
    export_run(run, tmp_path / "again.tfx")
    assert out.read_bytes() == (tmp_path / "again.tfx").read_bytes()


def test_an_archive_is_read_where_it_is(store, run, out):
    export_run(run, out)
    store.remove(run)
    for stored in (load_archive(out), store.resolve(str(out))):
        assert (stored.run.id, stored.run.name) == (run.name, "base")
        ((_, index),) = stored.traces()
        assert stored.load_trace(index) == RELU
    with pytest.raises(RunDataError, match=r"run\.tfx, subgraphs/\.\./run\.json: not in the archive"):
        stored.read("subgraphs/../run.json")


def test_a_file_that_exists_is_kept(run, out):
    out.write_text("mine")
    with pytest.raises(CommandError, match="exists") as caught:
        export_run(run, out)
    assert caught.value.exit_code == EXIT_USAGE
    assert out.read_text() == "mine"
    export_run(run, out, force=True)
    assert load_archive(out).run.id == run.name


def test_a_place_that_cannot_be_written(run, tmp_path):
    with pytest.raises(CommandError, match=r"cannot write .*No such file") as caught:
        export_run(run, tmp_path / "nowhere" / "run.tfx")
    assert caught.value.exit_code == EXIT_NO_RUN


def test_links_and_strange_files_stay_at_home(run, out, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (run / "link.json").symlink_to(tmp_path / "secret")
    (run / ".hidden").write_text("x")
    export_run(run, out)
    names = zipfile.ZipFile(out).namelist()
    assert names == ["run.json", "subgraphs/000/forward.execution.json.gz", "subgraphs/000/forward.py"]


def test_the_folder_name_is_the_id(store, run, out):
    copy = run.rename(run.with_name("20270101-000000-copy-0001"))
    export_run(copy, out)
    assert load_archive(out).run.id == copy.name


def test_another_run_with_the_id_is_kept(store, run, out):
    export_run(run, out)
    store.rename(run, "other")
    with pytest.raises(RunDataError, match="the store has another run"):
        import_run(store, out)
    assert store.resolve("@1").run.name == "other"


def member(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def pack(out: Path, *members: tuple[zipfile.ZipInfo | str, bytes], run: bytes = RUN_JSON) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member("run.json"), run)
        for info, data in members:
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)


def refused(out: Path, message: str) -> None:
    """Both ways in refuse it, and the import leaves nothing behind, in the store or beside it."""
    parent = out.parent
    before = sorted(path for path in parent.rglob("*"))
    target = Store(parent / "fresh")
    with pytest.raises(RunDataError, match=message) as caught:
        import_run(target, out)
    assert caught.value.exit_code == EXIT_NO_RUN
    assert "\n" not in caught.value.message and "\x1b" not in caught.value.message
    assert sorted(path for path in parent.rglob("*")) == before


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../run.json",
        "subgraphs/../../x.json",
        "C:/x.json",
        "a\\b.json",
        "./x.json",
        "a//b.json",
        ".hidden",
        "-rf",
        "folder/",
        "x\x1b[31m.json",
        "x\n.json",
        "ü.json",
        "a/b/c/d/e/f.json",
        "x" * 300,
    ],
)
def test_a_name_that_is_no_name_inside_a_run(out, name):
    pack(out, (member(name), b"x"))
    refused(out, "is not a name inside a run")
    with pytest.raises(RunDataError):
        load_archive(out)


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (stat.S_IFLNK | 0o777, "is a link"),
        (stat.S_IFIFO | 0o644, "is not a regular file"),
        (stat.S_IFCHR | 0o644, "is not a regular file"),
        (stat.S_IFDIR | 0o755, "is not a regular file"),
    ],
    ids=["link", "pipe", "device", "folder"],
)
def test_a_member_that_is_no_regular_file(out, mode, problem):
    pack(out, (member("x.json", mode), b"/etc/passwd"))
    refused(out, problem)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["x.json", "x.json"], "twice"),
        (["run.json"], "twice"),
        (["x.json", "X.json"], "one file"),
        (["x.json", "x.json/y.json"], "one file"),
        (["RUN.json"], "one file"),
    ],
    ids=str,
)
def test_members_that_would_be_one_file(out, names, problem):
    pack(out, *((member(name), b"x") for name in names))
    refused(out, problem)


def test_too_many_members(out, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    pack(out, *((member(f"{number}.json"), b"") for number in range(10)))
    refused(out, "more members than a run")


def test_a_directory_that_says_little_of_its_length_is_not_read(out):
    """A million members behind an end record that tells of one: refused before they are read."""
    entry = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0) + b"x.json"
    directory = entry * 1_000_000
    out.write_bytes(directory + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(directory), 0, 0))
    begin = time.perf_counter()
    refused(out, "more members than a run")
    assert time.perf_counter() - begin < 5
    small = entry + struct.pack("<4sIQIIIQQ", b"PK\6\6", 44, 0, 45, 45, 0, 0, 1)
    out.write_bytes(
        small
        + struct.pack("<4sIQI", b"PK\6\7", 0, len(entry), 1)
        + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(entry), 0, 0)
    )
    refused(out, "more members than a run")


def bombs() -> Iterator[tuple[str, list[tuple[zipfile.ZipInfo, bytes]]]]:
    zeros = bytes(100 << 20)
    yield "one member", [(member("x.json"), zeros)]
    yield "many members", [(member(f"{n}.json"), zeros[: 20 << 20]) for n in range(5)]
    yield "compressed within", [(member("x.json.gz"), compress(zeros))]


@pytest.mark.parametrize(("name", "members"), list(bombs()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_bomb_is_refused_by_what_it_expands_to(out, name, members):
    pack(out, *members)
    assert out.stat().st_size < 1 << 20
    refused(out, "expands to far more than a run holds")


def test_a_bomb_that_lies_about_its_size_is_counted(out):
    """The sizes that the directory declares are made small: what comes out counts, or it is no valid zip."""
    pack(out, (member("x.json"), bytes(100 << 20)))
    data = bytearray(out.read_bytes())
    for at in (data.index(b"x.json") - 30 + 22, data.rindex(b"x.json") - 46 + 24):
        data[at : at + 4] = (10).to_bytes(4, "little")
    out.write_bytes(data)
    refused(out, r"damaged: x\.json: Bad CRC-32")


def test_a_large_file_in_a_large_archive(out, monkeypatch):
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 1000)
    pack(out, (member("x.json"), bytes(range(256)) * 4))
    refused(out, r"x\.json is larger than")


def test_reading_one_trace_of_an_archive_is_bounded(store, run, out):
    """Opening reads ``run.json`` only; a trace that is a bomb is found when it is read, at little cost."""
    deep = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = deep.compress(bytes(400 << 20)) + deep.flush()
    (run / "subgraphs/000/forward.execution.json.gz").write_bytes(bomb)
    export_run(run, out)
    ((_, index),) = load_archive(out).traces()
    tracemalloc.start()
    with pytest.raises(RunDataError, match="larger than 256 MiB"):
        load_archive(out).load_trace(index)
    with pytest.raises(RunDataError, match="larger than 256 MiB"):
        store.resolve("@1").load_trace(index)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 700 << 20
    refused(out, "larger than 256 MiB|expands to far more")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no zip file"),
        (b"PK\5\6", "no zip file"),
        (b"x" * 100, "no zip file"),
        (b"PK\5\6" + bytes(18), "it has no run.json"),
        (struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, 46, 0, 0), "not an exported run"),
    ],
    ids=["empty", "short", "text", "no members", "directory outside"],
)
def test_what_is_no_archive(out, data, message):
    out.write_bytes(data)
    refused(out, message)


def test_no_file(tmp_path):
    for path in (tmp_path / "none.tfx", tmp_path):
        with pytest.raises(RunDataError, match=r"cannot be read: No such file|is not a file"):
            load_archive(path)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (b"{", "damaged"),
        (b'{"id": "../../x"}', "is not the id of a run"),
        (b'{"id": ".tmp-x"}', "is not the id of a run"),
        (b'{"id": "\\u001b[31m"}', "is not the id of a run"),
        (b'{"id": "x", "schema_version": 99}', "schema version 99"),
        (
            b'{"id": "x", "subgraphs": [{"index": 0, "traces": [{"stage": "s", "path": "t.json"}]}]}',
            "not in the archive",
        ),
        (b"[" * 100_000, "damaged"),
    ],
    ids=["json", "parent", "hidden", "control", "newer", "missing trace", "deep"],
)
def test_a_run_that_is_damaged(out, run, message):
    pack(out, run=run)
    refused(out, message)


def test_every_truncation_and_many_flips_are_refused_or_harmless(run, out):
    """No error but ours, whatever the bytes are."""
    export_run(run, out)
    whole = out.read_bytes()
    target = Store(out.parent / "fresh")
    seen = 0
    damaged = [whole[:end] for end in range(0, len(whole), 7)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in range(0, len(whole), 3)]
    for data in damaged:
        out.write_bytes(data)
        try:
            import_run(target, out)
        except RunDataError:
            seen += 1
    assert seen > len(damaged) / 2
