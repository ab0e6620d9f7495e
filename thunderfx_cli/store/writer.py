"""Writing one run: under a temporary name, renamed when complete, so that a kill leaves nothing half done."""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from thunderfx.profiling.allocations.model import MemoryProfile
from thunderfx.profiling.costs import TraceCosts
from thunderfx.trace import TraceCtx

from thunderfx_cli.store.compression import SUFFIX, compress
from thunderfx_cli.store.schema import Run, TraceIndex
from thunderfx_cli.store.temporary import TemporaryFolder, storage_errors


def new_id(target: str, now: float | None = None) -> str:
    """``20261201-142233-nanogpt-3f9a``."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", target).strip("-").lower()[:40] or "run"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{stamp}-{slug}-{secrets.token_hex(2)}"


class RunWriter:
    """One run being written. End it with :meth:`commit` or :meth:`abandon`.

    Where the store stops taking data, as when the disk is full, the run goes on in a store of its own in the system's
    temporary folder: ``rescued`` names it, and ``problem`` says what happened.
    """

    def __init__(self, runs: Path, target: str) -> None:
        self.id = new_id(target)
        self.rescued: Path | None = None
        self.problem = ""
        self._target = target
        self._runs = runs
        with storage_errors(runs):
            self._folder = TemporaryFolder(runs)

    def add_trace(self, subgraph: int, direction: str, stage: str, trace: TraceCtx, time_ms: float = 0.0) -> TraceIndex:
        """Write the trace after one stage; the result goes into the run's subgraph index."""
        safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stage)
        name = "torch.json" if stage == "torch" else f"{direction}.{safe}.json"
        path = f"subgraphs/{subgraph:03d}/{name}{SUFFIX}"
        self._write(path, compress(trace.to_json()))
        return TraceIndex(stage, path, direction, len(trace.bound_symbols), time_ms)

    def add_costs(self, subgraph: int, direction: str, costs: TraceCosts) -> str:
        """Write what the lines of the execution trace cost; the result is ``TraceIndex.costs``."""
        path = f"subgraphs/{subgraph:03d}/{direction}.costs.json{SUFFIX}"
        self._write(path, compress(msgspec.json.encode(costs)))
        return path

    def add_memory(self, profile: MemoryProfile) -> str:
        """Write what held memory in a step; the result is ``Memory.profile``."""
        path = f"memory.json{SUFFIX}"
        self._write(path, compress(msgspec.json.encode(profile)))
        return path

    def write_text(self, subgraph: int, name: str, text: str) -> None:
        """Write a trace as text, for an editor."""
        self._write(f"subgraphs/{subgraph:03d}/{name}", text.encode("utf-8", "backslashreplace"))

    def _write(self, path: str, data: bytes) -> None:
        try:
            self._folder.write(path, data)
        except OSError as e:
            self._rescue(e)
            with storage_errors(self._runs):
                self._folder.write(path, data)

    def commit(self, run: Run) -> Path:
        """Write ``run.json`` and make the run visible. Returns its folder, whose name is the run's id: a new one where
        another run has just taken this one's."""
        if run.id != self.id:
            raise ValueError(f"the run's id is {run.id!r}, the writer's {self.id!r}")
        try:
            return self._publish(run)
        except OSError as e:
            self._rescue(e)
            with storage_errors(self._runs):
                return self._publish(run)

    def _publish(self, run: Run) -> Path:
        while True:
            self._folder.write("run.json", msgspec.json.format(_encode(run)), sync=True)
            try:
                return self._folder.publish(run.id)
            except FileExistsError:
                self.id = new_id(self._target)
                run = msgspec.structs.replace(run, id=self.id)

    def _rescue(self, failure: OSError) -> None:
        """Go on in the system's temporary folder with all that was written. Raises the store's error where that is
        impossible too."""
        if self.rescued is not None:
            with storage_errors(self._runs):
                raise failure
        with storage_errors(self._runs, failure):
            root = Path(tempfile.mkdtemp(prefix="thunderfx-"))
            try:
                folder = TemporaryFolder(root / "runs")
                shutil.copytree(self._folder.path, folder.path, dirs_exist_ok=True)
            except OSError:
                shutil.rmtree(root, ignore_errors=True)
                raise
        self.abandon()
        self.rescued, self._folder = root, folder
        self.problem = f"cannot write to the store {self._runs}: {failure.strerror or failure}"

    def abandon(self) -> None:
        """Remove what was written; nothing happens after :meth:`commit`."""
        self._folder.remove()


def _encode(run: Run) -> bytes:
    """``run`` as JSON; bytes of an argument or path that are not UTF-8 are escaped rather than the run lost."""
    try:
        return msgspec.json.encode(run)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(run)))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value
