"""Reading stored runs. Their content is data from anywhere: nothing of it runs, no path leaves the run's folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec
from thunderfx.profiling.allocations.model import MemoryProfile
from thunderfx.profiling.costs import TraceCosts
from thunderfx.trace import TraceCtx, TraceDecodeError, TraceError, check, from_json, unfused
from thunderfx.trace.printer import one_line

from thunderfx_cli.errors import RunDataError
from thunderfx_cli.store.compression import CompressionError, expand
from thunderfx_cli.store.files import read_regular_file
from thunderfx_cli.store.schema import SCHEMA_VERSION, Run, SubgraphIndex, TraceIndex

#: The file that makes a folder a run.
RUN_FILE = "run.json"


class _Version(msgspec.Struct):
    schema_version: int = 1


_version_decoder = msgspec.json.Decoder(_Version)
_run_decoder = msgspec.json.Decoder(Run)


def read_run(folder: Path) -> Run:
    """The run in ``folder``; its id is the folder's name, which is what finds it again.

    Raises :class:`RunDataError` for a damaged run or one of a newer schema.
    """
    try:
        data = read_regular_file(f"{folder}/{RUN_FILE}")
    except OSError as e:
        raise RunDataError(f"run {one_line(folder.name)} cannot be read: {e.strerror or e}") from None
    return msgspec.structs.replace(decode_run(data, folder.name), id=folder.name)


def decode_run(data: bytes, name: str) -> Run:
    """The run that ``data``, the content of ``run.json``, describe; ``name`` is what errors call it.

    Raises :class:`RunDataError` for damaged data or a newer schema.
    """
    try:
        run = _run_decoder.decode(data)
        version = run.schema_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        version = _version_of(data)
        if version <= SCHEMA_VERSION:
            raise RunDataError(f"run {one_line(name)} is damaged: {RUN_FILE}: {one_line(str(e))}") from None
    if version > SCHEMA_VERSION:
        raise RunDataError(
            f"run {one_line(name)} has schema version {version}; this thunderfx reads up to {SCHEMA_VERSION}",
            hint="Update thunderfx.",
        )
    return run


def _version_of(data: bytes) -> int:
    """Schema version of what may differ from this version's schema; 0 where it has none."""
    try:
        return _version_decoder.decode(data).schema_version
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0


@dataclasses.dataclass
class RunEntry:
    """A run's folder in a listing: ``run``, or ``problem`` where it cannot be read."""

    folder: Path
    run: Run | None
    problem: str = ""


class StoredRun:
    """One readable run."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self.run = run

    @cached_property
    def _root(self) -> Path:
        return self.folder.resolve()

    def load_trace(self, index: TraceIndex) -> TraceCtx:
        """The trace that an index entry names. Raises :class:`RunDataError` where it is missing or damaged."""
        try:
            trace = from_json(self.read(index.path))
            check(trace)
        except (TraceDecodeError, TraceError) as e:
            raise RunDataError(f"{self._where(index.path)} is damaged: {one_line(str(e))}") from None
        return trace

    def load_costs(self, index: TraceIndex, trace: TraceCtx) -> TraceCosts | None:
        """What the lines of ``trace`` cost; ``None`` where the run holds no costs of this stage.

        Raises :class:`RunDataError` where they are missing, damaged or do not fit the trace.
        """
        if not index.costs:
            return None
        try:
            costs = msgspec.json.decode(self.read(index.costs), type=TraceCosts)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise RunDataError(f"{self._where(index.costs)} is damaged: {one_line(str(e))}") from None
        fits = len(costs.lines) == len(trace.bound_symbols) and all(
            len(cost.members) in (0, len(line.subsymbols))
            for cost, line in zip(costs.lines, trace.bound_symbols, strict=True)
        )
        if not fits:
            raise RunDataError(f"{self._where(index.costs)} is damaged: its lines are not those of the trace")
        return costs

    def load_memory(self) -> MemoryProfile | None:
        """What held memory in a step; ``None`` where the run holds nothing of it.

        Raises :class:`RunDataError` where it is missing or damaged.
        """
        path = self.run.memory.profile
        if not path:
            return None
        try:
            return msgspec.json.decode(self.read(path), type=MemoryProfile)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise RunDataError(f"{self._where(path)} is damaged: {one_line(str(e))}") from None

    def read(self, path: str) -> bytes:
        """The content of one of the run's files, by its path in the run; expanded where it is compressed.

        Raises :class:`RunDataError` where it is missing or damaged, or where the path leaves the run.
        """
        try:
            return expand(self._stored_bytes(path))
        except CompressionError as e:
            raise RunDataError(f"{self._where(path)} is damaged: {e}") from None

    def _stored_bytes(self, path: str) -> bytes:
        where = self._where(path)
        try:
            place = (self._root / path).resolve()
        except (ValueError, OSError, RuntimeError):  # a null byte, a name too long, links in a circle
            raise RunDataError(f"{where}: not a path") from None
        if not place.is_relative_to(self._root):
            raise RunDataError(f"{where}: the path leaves the run's folder")
        try:
            return read_regular_file(place)
        except OSError as e:
            raise RunDataError(f"{where}: {e.strerror or e}") from None

    def _where(self, path: str) -> str:
        return f"run {one_line(self.run.id)}, {one_line(path)}"

    def program(self, index: TraceIndex) -> str:
        """The bare program of the trace that an index entry names, without fusions, whose code is not stored as such.

        Raises :class:`RunDataError` as :meth:`load_trace`.
        """
        return self.text(index, lambda trace: unfused(trace).python())

    def text(self, index: TraceIndex, show: Callable[[TraceCtx], str]) -> str:
        """What ``show`` makes of the trace. Raises :class:`RunDataError` as :meth:`load_trace`."""
        trace = self.load_trace(index)
        try:
            return show(trace)
        except ValueError as e:  # a literal that is no literal
            raise RunDataError(f"{self._where(index.path)} is damaged: {one_line(str(e))}") from None

    def traces(
        self, direction: str | None = None, subgraph: int | None = None, stage: str = "execution"
    ) -> Iterator[tuple[SubgraphIndex, TraceIndex]]:
        """Index entries that match, in order of subgraph, forward before backward."""
        for graph in self.run.subgraphs:
            if subgraph is not None and graph.index != subgraph:
                continue
            for index in graph.traces:
                if index.stage == stage and (direction is None or index.direction == direction):
                    yield graph, index
