"""A run as one file (``.tfx``, a zip): writing it, reading it in place, bringing it into a store.

An archive may come from anywhere. Nothing of it is written before every member was checked: names that stay inside the
run, regular files only, each once, no more of them and no larger than a run has, measured on what they expand to.
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from thunderfx.trace.printer import one_line

from thunderfx_cli.errors import EXIT_NO_RUN, CommandError, RunDataError, UsageError
from thunderfx_cli.store.compression import MAX_FILE_BYTES, SUFFIX, CompressionError, expand
from thunderfx_cli.store.files import read_regular_file
from thunderfx_cli.store.reader import RUN_FILE, StoredRun, decode_run
from thunderfx_cli.store.schema import edited
from thunderfx_cli.store.temporary import TemporaryFolder, replacing, storage_errors

if TYPE_CHECKING:
    from thunderfx_cli.store.store import Store

MAX_MEMBERS = 20_000
#: All members expanded, those that are themselves compressed included.
MAX_EXPANDED_BYTES = 1 << 31
#: Expanded bytes for each byte of the archive, beyond the first ``FREE_BYTES``. Traces expand about 15 times.
MAX_RATIO = 200
FREE_BYTES = 1 << 26
#: A member takes 46 bytes of the directory and its name.
_MAX_DIRECTORY_BYTES = MAX_MEMBERS * 200
_END = b"PK\x05\x06"
_END_BYTES = 22
_LOCATOR_64 = b"PK\x06\x07"
_LOCATOR_64_BYTES = 20
_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}/){0,4}[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}\Z")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,100}\Z")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_CHUNK = 1 << 20
_ENCRYPTED = 1


def export_run(folder: Path, out: Path, *, force: bool = False) -> None:
    """Write the run in ``folder`` to the file ``out``; equal runs give equal files.

    Raises :class:`UsageError` where ``out`` exists and ``force`` is not set, ``CommandError`` where it cannot be
    written.
    """
    if out.exists() and not force:
        raise UsageError(f"{out} exists", hint="Overwrite it with --force, or give another file.")
    try:
        with replacing(out) as file:
            _write(folder, file)
    except OSError as e:
        raise CommandError(f"cannot write {out}: {e.strerror or e}", exit_code=EXIT_NO_RUN) from None


def _write(folder: Path, file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name in _files(folder):
            data = read_regular_file(folder / name)
            if name == RUN_FILE:
                data = edited(data, id=folder.name)  # the folder's name is the id, whoever copied or renamed it
            member = zipfile.ZipInfo(name, _EPOCH)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(member, data, zipfile.ZIP_STORED if name.endswith(SUFFIX) else zipfile.ZIP_DEFLATED)


def _files(folder: Path) -> list[str]:
    """The run's files, ``run.json`` first; links and what no run has are left out."""
    found = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if name != RUN_FILE and not path.is_symlink() and path.is_file() and _NAME.match(name):
            found.append(name)
    return [RUN_FILE, *sorted(found)]


class ArchivedRun(StoredRun):
    """A run that is read from its archive; nothing is unpacked on disk."""

    def __init__(self, path: Path) -> None:
        self._name = one_line(str(path))
        self._archive, self._members, budget = _open(path)
        data = _content(self._archive, self._members[RUN_FILE], budget, self._name)
        run = decode_run(data, self._name)
        if not _ID.match(run.id):
            raise RunDataError(f"{self._name} is damaged: {one_line(run.id[:100])!r} is not the id of a run")
        super().__init__(path, run)

    def _stored_bytes(self, path: str) -> bytes:
        member = self._members.get(path)
        if member is None:
            raise RunDataError(f"{self._where(path)}: not in the archive")
        return _content(self._archive, member, _Budget(self.folder), self._name)

    def _where(self, path: str) -> str:
        return f"{self._name}, {one_line(path)}"

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Name and stored bytes of every member, all of them within one budget."""
        budget = _Budget(self.folder)
        for name, member in self._members.items():
            data = _content(self._archive, member, budget, self._name)
            if name.endswith(SUFFIX):
                try:
                    budget.spend(len(expand(data)), self._name)
                except CompressionError as e:
                    raise RunDataError(f"{self._where(name)} is damaged: {e}") from None
            yield name, data


def load_archive(path: Path) -> StoredRun:
    """The run in an archive. Raises :class:`RunDataError` where there is none, or a damaged or hostile one."""
    return ArchivedRun(path)


def import_run(store: Store, path: Path) -> tuple[str, bool]:
    """Bring the run of an archive into ``store``. Returns its id, and whether it is new there.

    Raises :class:`RunDataError` for a damaged or hostile archive, and where another run has the id;
    ``CommandError`` where the store cannot be written.
    """
    archived = ArchivedRun(path)
    for _ in archived.contents():  # all of it is checked before anything is written
        pass
    run_id = archived.run.id
    for index in [index for graph in archived.run.subgraphs for index in graph.traces]:
        archived.read(index.path)
    present = store.runs / run_id
    if present.exists():
        return _same(present, archived, run_id)
    store.prepare()
    with storage_errors(store.root):
        folder = TemporaryFolder(store.runs)
        try:
            for name, data in archived.contents():
                folder.write(name, data, sync=name == RUN_FILE)
            folder.publish(run_id)
        except FileExistsError:
            return _same(present, archived, run_id)
        finally:
            folder.remove()
    return run_id, True


def _same(present: Path, archived: ArchivedRun, run_id: str) -> tuple[str, bool]:
    try:
        same = read_regular_file(present / RUN_FILE) == archived.read(RUN_FILE)
    except OSError:
        same = False
    if not same:
        raise RunDataError(f"the store has another run {run_id}", hint=f"Remove it first: thunderfx runs rm {run_id}")
    return run_id, False


class _Budget:
    """How many bytes an archive may still expand to."""

    def __init__(self, path: Path) -> None:
        try:
            size = path.stat().st_size
        except OSError as e:
            raise RunDataError(f"{one_line(str(path))} cannot be read: {e.strerror or e}") from None
        self.left = min(MAX_EXPANDED_BYTES, max(FREE_BYTES, MAX_RATIO * size))

    def spend(self, count: int, name: str) -> None:
        self.left -= count
        if self.left < 0:
            raise RunDataError(f"{name} is refused: it expands to far more than a run holds")


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: _Budget, name: str) -> bytes:
    """A member's bytes, counted as they come, whatever the archive says of its size."""
    parts = []
    size = 0
    try:
        with archive.open(member) as file:
            while part := file.read(_CHUNK):
                budget.spend(len(part), name)
                size += len(part)
                if size > MAX_FILE_BYTES:
                    raise RunDataError(
                        f"{name} is refused: {member.filename} is larger than {MAX_FILE_BYTES >> 20} MiB"
                    )
                parts.append(part)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as e:
        raise RunDataError(f"{name} is damaged: {member.filename}: {one_line(str(e))}") from None
    return b"".join(parts)


def _open(path: Path) -> tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo], _Budget]:
    """The archive, its checked members by name, and its budget."""
    name = one_line(str(path))
    budget = _Budget(path)
    try:
        if not path.is_file():
            raise RunDataError(f"{name} is not a file")
        file = open(path, "rb")
        _check_directory(file, name)
        archive = zipfile.ZipFile(file)
    except OSError as e:
        raise RunDataError(f"{name} cannot be read: {e.strerror or e}") from None
    except (zipfile.BadZipFile, NotImplementedError, ValueError, UnicodeDecodeError) as e:
        raise RunDataError(f"{name} is not an exported run: {one_line(str(e))}") from None
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        problem = _problem(member)
        if not problem and member.filename in members:
            problem = "stands in it twice"
        if problem:
            raise RunDataError(f"{name} is refused: {one_line(member.orig_filename[:100])!r} {problem}")
        members[member.filename] = member
    lowered = {member.lower() for member in members}
    parents = {parent for member in lowered for parent in _parents(member)}
    if len(lowered) < len(members) or parents & lowered:
        raise RunDataError(f"{name} is refused: two of its members would be one file")
    if RUN_FILE not in members:
        raise RunDataError(f"{name} is not an exported run: it has no {RUN_FILE}")
    return archive, members, budget


def _parents(name: str) -> Iterator[str]:
    parts = name.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))


def _check_directory(file: IO[bytes], name: str) -> None:
    """Refuse an archive whose directory alone is larger than a run's can be, before it is read.

    The end record is found as ``zipfile`` finds it: at the very end, else the last one in the last 64 KiB (PKWARE
    APPNOTE 4.3.16). A 64-bit record, which no run needs, would say something else (4.3.15).
    """
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _END_BYTES - (1 << 16) - _LOCATOR_64_BYTES)
    file.seek(start)
    tail = file.read()
    at = len(tail) - _END_BYTES
    if at < 0 or not (tail.startswith(_END, at) and tail.endswith(b"\0\0")):
        at = tail.rfind(_END)
    if at < 0 or len(tail) < at + _END_BYTES:
        raise RunDataError(f"{name} is not an exported run: it is no zip file, or is cut off")
    count = int.from_bytes(tail[at + 10 : at + 12], "little")
    directory_bytes = int.from_bytes(tail[at + 12 : at + 16], "little")
    is_64 = tail.startswith(_LOCATOR_64, max(0, at - _LOCATOR_64_BYTES))
    if count > MAX_MEMBERS or directory_bytes > _MAX_DIRECTORY_BYTES or is_64:
        raise RunDataError(f"{name} is refused: it has more members than a run")
    file.seek(0)


def _problem(member: zipfile.ZipInfo) -> str:
    """Why a member cannot be part of a run; ``""`` where it can."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    if member.orig_filename != member.filename or not _NAME.match(member.filename):
        return "is not a name inside a run"
    if kind not in (0, stat.S_IFREG):
        return "is a link" if kind == stat.S_IFLNK else "is not a regular file"
    if member.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in a way that no run is"
    return ""
