"""Writing runs: whole or not at all."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from thunderfx.trace import BoundSymbol, ListArg, Ref, TensorType, TraceCtx, Variable

from thunderfx_cli.errors import EXIT_NO_RUN, CommandError
from thunderfx_cli.store import Store
from thunderfx_cli.store.schema import Run, SubgraphIndex, Timing
from thunderfx_cli.store.temporary import temporary_prefix
from thunderfx_cli.store.writer import new_id

F32 = TensorType("float32", (4, 64))
RELU = TraceCtx(
    "forward",
    (Variable("x", F32, "x"),),
    (BoundSymbol("aten.relu.default", (Ref("x"),), outputs=(Variable("a", F32),)),),
    ListArg((Ref("a"),)),
)
WRITE_UNTIL_KILLED = """
import itertools, sys
from pathlib import Path
from tests_store_trace import RELU
from thunderfx_cli.store import Store
writer = Store(Path(sys.argv[1])).new_run("victim.py")
for number in itertools.count():
    writer.add_trace(number, "forward", "execution", RELU)
    print(number, flush=True)
"""


def names(store: Store) -> list[str]:
    return sorted(path.name for path in store.runs.iterdir())


def write(store: Store, **fields: object) -> str:
    writer = store.new_run("model.py")
    index = writer.add_trace(0, "forward", "execution", RELU, 1.5)
    writer.commit(Run(writer.id, subgraphs=(SubgraphIndex(0, (index,)),), **fields))
    return writer.id


def test_ids_sort_by_time_and_carry_the_target():
    assert new_id("Nano GPT/v2.py", 0.0)[15:-4] == "-nano-gpt-v2-py-"
    assert new_id("m", 2_000_000_000)[:15] > new_id("m", 1_900_000_000)[:15]
    assert new_id("///").split("-")[2] == "run"


def test_layout_on_disk(tmp_path):
    store = Store(tmp_path / "store")
    writer = store.new_run("model.py")
    indices = [writer.add_trace(3, "forward", stage, RELU) for stage in ("torch", "execution")]
    writer.write_text(3, "forward.py", "text\udcff")
    folder = writer.commit(Run(writer.id))
    assert folder == store.runs / writer.id
    assert [index.path for index in indices] == [
        "subgraphs/003/torch.json.gz",
        "subgraphs/003/forward.execution.json.gz",
    ]
    assert [index.lines for index in indices] == [1, 1]
    assert all(gzip.decompress((folder / index.path).read_bytes()) == RELU.to_json() for index in indices)
    assert (folder / "subgraphs/003/forward.py").read_text() == "text\\udcff"
    assert (store.root / ".gitignore").read_text() == "*\n"


def test_a_stage_name_cannot_leave_the_folder(tmp_path):
    index = Store(tmp_path).new_run("m").add_trace(0, "forward", "../../x", RELU)
    assert index.path == "subgraphs/000/forward.-x.json.gz"
    assert index.stage == "../../x"


def test_a_run_is_invisible_until_it_is_committed(tmp_path):
    store = Store(tmp_path)
    writer = store.new_run("model.py")
    writer.add_trace(0, "forward", "execution", RELU)
    assert store.entries() == []
    writer.commit(Run(writer.id))
    assert names(store) == [writer.id]


def test_an_abandoned_run_leaves_nothing(tmp_path):
    store = Store(tmp_path)
    writer = store.new_run("model.py")
    writer.add_trace(0, "forward", "execution", RELU)
    writer.abandon()
    assert names(store) == []


def test_another_runs_id_is_refused(tmp_path):
    with pytest.raises(ValueError, match="20200101"):
        Store(tmp_path).new_run("model.py").commit(Run("20200101-000000-x-0000"))


def test_sigkill_while_writing_leaves_the_rest(tmp_path):
    store = Store(tmp_path / "store")
    kept = write(store, name="kept")
    (tmp_path / "tests_store_trace.py").write_text(
        "from pathlib import Path\nfrom thunderfx.trace import from_json\n"
        f"RELU = from_json(Path({str(tmp_path / 'relu.json')!r}).read_bytes())\n"
    )
    (tmp_path / "relu.json").write_bytes(RELU.to_json())
    victim = subprocess.Popen(
        [sys.executable, "-c", WRITE_UNTIL_KILLED, str(store.root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
    )
    while int(victim.stdout.readline()) < 20:
        pass
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert len(names(store)) == 2
    assert [entry.run.name for entry in store.entries()] == ["kept"]
    assert store.resolve("kept").load_trace(store.resolve("kept").run.subgraphs[0].traces[0]) == RELU
    later = write(store)
    assert names(store) == sorted([kept, later])  # the next writer removed what the victim left


def test_folders_of_the_living_and_of_other_machines_stay(tmp_path):
    store = Store(tmp_path)
    store.new_run("alive")
    gone = multiprocessing.get_context("spawn").Process(target=int)
    gone.start()
    gone.join()
    foreign = store.runs / f".tmp-othermachine-{gone.pid}-abc"
    stale = store.runs / f"{temporary_prefix().replace(str(os.getpid()), str(gone.pid))}abc"
    foreign.mkdir()
    stale.mkdir()
    store.new_run("next")
    assert foreign.exists()
    assert not stale.exists()
    assert sum(name.startswith(temporary_prefix()) for name in names(store)) == 2


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="cannot write to the store") as caught:
        Store(tmp_path / "file" / "store").new_run("m")
    assert caught.value.exit_code == EXIT_NO_RUN
    assert "--store" in caught.value.hint


def test_a_full_disk(tmp_path):
    """A limit on the size of files stands for the full disk: both are an ``OSError`` of ``write``."""
    writer = Store(tmp_path).new_run("m")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(CommandError, match=r"cannot write to the store .*: File too large"):
            writer.add_trace(0, "forward", "execution", RELU)
        with pytest.raises(CommandError, match="File too large"):
            writer.commit(Run(writer.id))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert Store(tmp_path).entries() == []


def test_bytes_that_are_not_text_do_not_lose_the_run(tmp_path):
    store = Store(tmp_path)
    fields = {"command": ("run", "\udcff.py"), "options": {"k": "\udcfe"}, "timings": {"step": Timing((1.0,))}}
    run = store.resolve(write(store, **fields)).run
    assert run.command == ("run", "\\udcff.py")
    assert run.options == {"k": "\\udcfe"}
    assert run.timings["step"].samples_ms == (1.0,)


def test_removing_a_run(tmp_path):
    store = Store(tmp_path)
    first, second = write(store), write(store)
    store.remove(store.runs / first)
    assert names(store) == [second]
    with pytest.raises(CommandError, match="not a run of this store"):
        store.remove(tmp_path)


def test_removing_a_link_spares_what_it_points_to(tmp_path):
    store, elsewhere = Store(tmp_path / "store"), Store(tmp_path / "elsewhere")
    other = elsewhere.runs / write(elsewhere)
    store.runs.mkdir(parents=True)
    link: Path = store.runs / other.name
    link.symlink_to(other)
    store.remove(store.locate(other.name))
    assert names(store) == []
    assert (other / "run.json").exists()


def test_a_removal_that_stops_in_the_middle_has_left_the_list(tmp_path, monkeypatch):
    store = Store(tmp_path)
    run = write(store)

    def stop(folder: Path) -> None:
        (folder / "run.json").unlink()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("thunderfx_cli.store.store.shutil.rmtree", stop)
    with pytest.raises(CommandError, match="Input/output error"):
        store.remove(store.runs / run)
    assert store.entries() == []
