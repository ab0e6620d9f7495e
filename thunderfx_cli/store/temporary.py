"""What is being written: under a temporary name, folders locked too, and renamed when it is complete."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from thunderfx_cli.errors import EXIT_NO_RUN, CommandError

#: Folders with this prefix are being written, or were when their process died.
TEMPORARY = ".tmp-"
_HOST = re.sub(r"[^A-Za-z0-9]+", "", os.uname().nodename) or "host"
_OWNER = re.compile(re.escape(TEMPORARY) + r"(?P<host>[A-Za-z0-9]+)-(?P<pid>\d{1,9})-")


@contextlib.contextmanager
def storage_errors(place: Path, failure: OSError | None = None) -> Iterator[None]:
    """Turn a full disk or a read-only store into an error that names the place; ``failure`` is what it tells instead
    of the one that comes."""
    try:
        yield
    except OSError as e:
        told = failure or e
        raise CommandError(
            f"cannot write to the store {place}: {told.strerror or told}",
            exit_code=EXIT_NO_RUN,
            hint="Give another place with --store or THUNDERFX_HOME.",
        ) from e


def temporary_prefix() -> str:
    """Start of the name of a folder that this process will rename or remove: machine and process."""
    return f"{TEMPORARY}{_HOST}-{os.getpid()}-"


class TemporaryFolder:
    """A new folder under a temporary name. Every method raises ``OSError`` as the file system does.

    It is locked while its writer lives, so that no other process takes it for left behind.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        remove_stale(parent)
        self.path = Path(tempfile.mkdtemp(prefix=temporary_prefix(), dir=parent))
        self.path.chmod(0o755)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a file system without locks: the process's number has to do
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def write(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Write one file; ``sync`` waits until it is on the disk."""
        place = self.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def publish(self, name: str) -> Path:
        """Give the folder its final name beside where it was. Raises ``FileExistsError`` where that is taken."""
        final = self.path.parent / name
        try:
            os.rename(self.path, final)
        except OSError as e:
            if e.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            raise
        self._unlock()
        return final

    def remove(self) -> None:
        """Remove it; nothing happens after :meth:`publish`."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of ``path`` when it is complete. Raises ``OSError``."""
    handle, unfinished = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def remove_stale(parent: Path) -> None:
    """Remove temporary folders whose process is gone; those of other machines, which share the store, stay."""
    for folder in parent.glob(f"{TEMPORARY}*"):
        owner = _OWNER.match(folder.name)
        if owner and owner["host"] == _HOST and not _alive(int(owner["pid"])) and not _locked(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _locked(folder: Path) -> bool:
    """Whether a process that cannot be seen from here, as one in another container, holds the folder."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
