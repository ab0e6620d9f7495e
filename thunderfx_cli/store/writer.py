"""Writing one run: under a temporary name, renamed when complete, so that a kill leaves nothing half done."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from thunderfx.profiling.costs import TraceCosts
from thunderfx.trace import TraceCtx

from thunderfx_cli.errors import EXIT_NO_RUN, CommandError
from thunderfx_cli.store.schema import Run, TraceIndex

#: Folders with this prefix are being written, or were when their process died.
TEMPORARY = ".tmp-"


_HOST = re.sub(r"[^A-Za-z0-9]+", "", os.uname().nodename) or "host"
_OWNER = re.compile(re.escape(TEMPORARY) + r"(?P<host>[A-Za-z0-9]+)-(?P<pid>\d{1,9})-")


@contextlib.contextmanager
def storage_errors(place: Path) -> Iterator[None]:
    """Turn a full disk or a read-only store into an error that names the place."""
    try:
        yield
    except OSError as e:
        raise CommandError(
            f"cannot write to the store {place}: {e.strerror or e}",
            exit_code=EXIT_NO_RUN,
            hint="Give another place with --store or THUNDERFX_HOME.",
        ) from e


def new_id(target: str, now: float | None = None) -> str:
    """``20261201-142233-nanogpt-3f9a``."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", target).strip("-").lower()[:40] or "run"
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return f"{stamp}-{slug}-{secrets.token_hex(2)}"


def temporary_prefix() -> str:
    """Start of the name of a folder that this process will rename or remove: machine and process."""
    return f"{TEMPORARY}{_HOST}-{os.getpid()}-"


class RunWriter:
    """One run being written. End it with :meth:`commit` or :meth:`abandon`."""

    def __init__(self, runs: Path, target: str) -> None:
        self.id = new_id(target)
        self._runs = runs
        with storage_errors(runs):
            remove_stale(runs)
            self._folder = Path(tempfile.mkdtemp(prefix=temporary_prefix(), dir=runs))
            self._folder.chmod(0o755)

    def add_trace(self, subgraph: int, direction: str, stage: str, trace: TraceCtx, time_ms: float = 0.0) -> TraceIndex:
        """Write the trace after one stage; the result goes into the run's subgraph index."""
        safe = re.sub(r"[^A-Za-z0-9_-]+", "-", stage)
        name = "torch.json" if stage == "torch" else f"{direction}.{safe}.json"
        path = f"subgraphs/{subgraph:03d}/{name}"
        self._write(path, trace.to_json())
        return TraceIndex(stage, path, direction, len(trace.bound_symbols), time_ms)

    def add_costs(self, subgraph: int, direction: str, costs: TraceCosts) -> str:
        """Write what the lines of the execution trace cost; the result is ``TraceIndex.costs``."""
        path = f"subgraphs/{subgraph:03d}/{direction}.costs.json"
        self._write(path, msgspec.json.encode(costs))
        return path

    def write_text(self, subgraph: int, name: str, text: str) -> None:
        """Write a trace as text, for an editor."""
        self._write(f"subgraphs/{subgraph:03d}/{name}", text.encode("utf-8", "backslashreplace"))

    def _write(self, path: str, data: bytes) -> None:
        place = self._folder / path
        with storage_errors(self._runs):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

    def commit(self, run: Run) -> Path:
        """Write ``run.json`` and make the run visible. Returns its folder."""
        if run.id != self.id:
            raise ValueError(f"the run's id is {run.id!r}, the writer's {self.id!r}")
        final = self._runs / self.id
        with storage_errors(self._runs):
            with open(self._folder / "run.json", "wb") as file:
                file.write(msgspec.json.format(_encode(run)))
                file.flush()
                os.fsync(file.fileno())
            os.rename(self._folder, final)
        return final

    def abandon(self) -> None:
        """Remove what was written; nothing happens after :meth:`commit`."""
        shutil.rmtree(self._folder, ignore_errors=True)


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


def remove_stale(runs: Path) -> None:
    """Remove temporary folders whose process is gone; those of other machines, which share the store, stay."""
    for folder in runs.glob(f"{TEMPORARY}*"):
        owner = _OWNER.match(folder.name)
        if owner and owner["host"] == _HOST and not _alive(int(owner["pid"])):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
