"""The store: a folder of runs."""

from __future__ import annotations

import difflib
import os
import shutil
from pathlib import Path

from thunderfx.trace.printer import one_line

from thunderfx_cli.errors import RunDataError
from thunderfx_cli.store.files import read_regular_file
from thunderfx_cli.store.reader import RUN_FILE, RunEntry, StoredRun, read_run
from thunderfx_cli.store.schema import edited
from thunderfx_cli.store.temporary import replacing, storage_errors, temporary_prefix
from thunderfx_cli.store.writer import RunWriter

STORE_NAME = ".thunderfx"
#: What the name of an exported run ends in.
ARCHIVE_SUFFIX = ".tfx"
_HINT = "Store a run with: thunderfx run model.py"


class Store:
    """Runs under ``root/runs``; nothing is created before the first run is written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs = root / "runs"

    @classmethod
    def find(cls, explicit: Path | None = None) -> Store:
        """``--store``, else ``THUNDERFX_HOME``, else ``.thunderfx`` here or above, else ``.thunderfx`` here."""
        if explicit is not None:
            return cls(explicit.absolute())
        home = os.environ.get("THUNDERFX_HOME")
        if home:
            return cls(Path(home).absolute())
        here = Path.cwd()
        for folder in (here, *here.parents):
            if (folder / STORE_NAME).is_dir():
                return cls(folder / STORE_NAME)
        return cls(here / STORE_NAME)

    def prepare(self) -> None:
        """Create the store where it is not there. Raises ``CommandError`` where it cannot be written."""
        with storage_errors(self.root):
            self.runs.mkdir(parents=True, exist_ok=True)
            ignore = self.root / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")

    def new_run(self, target: str) -> RunWriter:
        """Begin a run of the target called ``target``. Raises ``CommandError`` where the store cannot be written."""
        self.prepare()
        return RunWriter(self.runs, target)

    def folders(self) -> list[Path]:
        """Folders of complete runs, newest first."""
        try:
            found = [entry for entry in os.scandir(self.runs) if entry.name[0] != "." and entry.is_dir()]
        except FileNotFoundError:
            return []
        except OSError as e:
            raise RunDataError(f"cannot read the store {self.root}: {e.strerror or e}") from None
        return [Path(entry.path) for entry in sorted(found, key=_age_key, reverse=True)]

    def entries(self) -> list[RunEntry]:
        """Every run, newest first; a damaged one with the reason."""
        entries = []
        for folder in self.folders():
            try:
                entries.append(RunEntry(folder, read_run(folder)))
            except RunDataError as e:
                entries.append(RunEntry(folder, None, e.message))
        return entries

    def resolve(self, ref: str) -> StoredRun:
        """The run called ``ref``: id, unique prefix, name (the newest with it), ``@1`` for the last readable run, or
        the path of an exported one (``main.tfx``), which is read where it is.

        Raises :class:`RunDataError` where there is none, more than one, or a damaged one.
        """
        if ref.endswith(ARCHIVE_SUFFIX):
            from thunderfx_cli.store.archive import load_archive

            return load_archive(Path(ref))
        folder = self.locate(ref)
        return StoredRun(folder, read_run(folder))

    def locate(self, ref: str) -> Path:
        """The folder of the run called ``ref``, which may be damaged where its id is given."""
        folders = self.folders()
        if not folders:
            raise RunDataError(f"there are no runs in {self.root}", hint=_HINT)
        if ref.startswith("@"):
            return self._by_position(ref, folders)
        matches = [folder for folder in folders if folder.name == ref] or [
            folder for folder in folders if ref and folder.name.startswith(ref)
        ]
        if len(matches) > 1:
            named = self._by_name(ref)
            if named is not None:
                return named
            shown = ", ".join(one_line(folder.name) for folder in matches[:5])
            raise RunDataError(f"{ref!r} could be any of {len(matches)} runs: {shown}", hint="Give more of the id.")
        if matches:
            return matches[0]
        found = self._by_name(ref)
        if found is not None:
            return found
        names = [entry.run.name for entry in self.entries() if entry.run is not None and entry.run.name]
        close = difflib.get_close_matches(ref, names + [folder.name for folder in folders], n=1, cutoff=0.3)
        hint = f"Did you mean {one_line(close[0])}? See: thunderfx runs" if close else "See: thunderfx runs"
        raise RunDataError(f"no run is called {ref!r}", hint=hint)

    def _by_position(self, ref: str, folders: list[Path]) -> Path:
        if not ref[1:].isdecimal() or int(ref[1:]) < 1:
            raise RunDataError(f"{ref!r} is not a position: @1 is the last run, @2 the one before")
        wanted = int(ref[1:])
        readable = 0
        for folder in folders:
            try:
                read_run(folder)
            except RunDataError:
                continue
            readable += 1
            if readable == wanted:
                return folder
        raise RunDataError(f"there is no run {ref}: {self.root} holds {readable} readable runs", hint=_HINT)

    def _by_name(self, name: str) -> Path | None:
        """Folder of the newest run with this name."""
        for entry in self.entries():
            if entry.run is not None and name and entry.run.name == name:
                return entry.folder
        return None

    def rename(self, folder: Path, name: str) -> None:
        """Give a run another name; killed in the middle, the run has the old one."""
        read_run(folder)
        with storage_errors(self.root):
            data = edited(read_regular_file(folder / RUN_FILE), name=name)
            status = folder.stat()
            with replacing(folder / RUN_FILE) as file:
                file.write(data)
            os.utime(folder, ns=(status.st_atime_ns, status.st_mtime_ns))  # runs of one second are in order of this

    def remove(self, folder: Path) -> None:
        """Delete a run's folder; killed in the middle, it has left the list already."""
        if folder.parent != self.runs:
            raise RunDataError(f"{folder} is not a run of this store")
        with storage_errors(self.root):
            if folder.is_symlink():
                folder.unlink()
                return
            leaving = self.runs / f"{temporary_prefix()}{folder.name}"
            os.rename(folder, leaving)
            shutil.rmtree(leaving)


def _age_key(entry: os.DirEntry[str]) -> tuple[str, int]:
    """Runs by their time stamp, those of one second by when they were written."""
    try:
        return entry.name[:15], entry.stat().st_mtime_ns
    except OSError:  # another process has just removed it
        return entry.name[:15], 0
