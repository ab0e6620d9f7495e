"""What is stored of a step's memory: bounded, and read without torch. Bytes are of whole storages."""

from __future__ import annotations

import msgspec

#: Kinds of what is alive, in the order in which a step makes them.
KINDS = (
    "parameters",
    "buffers",
    "optimizer state",
    "inputs",
    "saved for backward",
    "outputs",
    "intermediates",
    "workspace",
    "gradients",
    "outside the subgraphs",
    "unnamed",
)


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of an execution trace, and the user's line behind it."""

    subgraph: int | None = None  #: ``None``: outside the subgraphs
    direction: str = ""
    line: int | None = None  #: index into the trace's bound symbols
    symbol: str = ""  #: the line's symbol, or the eager operator
    module: str = ""
    file: str = ""
    number: int = 0  #: of the line in ``file``
    source: str = ""


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """One storage. ``name`` is a parameter's path, or the name that the line at ``place`` gave its value."""

    kind: str
    bytes: int
    name: str = ""
    type: str = ""  #: as in a trace, ``"cpu f32[4, 64]"``
    place: Place = Place()


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """Storages of one kind and module."""

    kind: str
    module: str
    bytes: int
    count: int


class Peak(msgspec.Struct, frozen=True, omit_defaults=True):
    """The moment of a step at which most was allocated.

    ``measured_bytes`` is what ``source`` counted; ``groups`` hold all of it that was found, the kind ``unnamed``
    included, and ``tensors`` the largest storages.
    """

    measured_bytes: int
    source: str
    named_bytes: int
    before_bytes: int  #: allocated before the step
    phase: str = ""
    place: Place = Place()
    groups: tuple[Group, ...] = ()
    tensors: tuple[Held, ...] = ()


class Phase(msgspec.Struct, frozen=True, omit_defaults=True):
    """``reserved_peak_bytes`` is ``None`` where no allocator reserves ahead (CPU)."""

    name: str
    start_ms: float
    end_ms: float
    peak_bytes: int
    end_bytes: int
    reserved_peak_bytes: int | None = None


class Point(msgspec.Struct, frozen=True, array_like=True):
    time_ms: float
    allocated_bytes: int
    reserved_bytes: int | None = None


class LineMemory(msgspec.Struct, frozen=True, array_like=True):
    """What one line of an execution trace did, measured; ``live_bytes`` is what was allocated when it had run."""

    subgraph: int
    direction: str
    line: int
    allocated_bytes: int
    peak_bytes: int
    live_bytes: int


class SavedTensor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A storage that a forward hands to its backward, and the line that made it."""

    name: str
    bytes: int
    type: str = ""
    place: Place = Place()


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """An estimate: what would not be held between forward and backward, were each module of ``modules`` checkpointed.

    ``module`` is their common path, ``"blocks.*"``. ``freed_bytes`` is ``saved_bytes``, less what other modules need
    of it, less what the modules take in and nobody saves so far.
    """

    module: str
    modules: int
    saved_bytes: int
    freed_bytes: int


class Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is saved for backward; ``tensors`` and ``checkpoints`` are the largest."""

    bytes: int
    count: int
    source: str  #: measured, or estimated from the traces' types
    unknown: int = 0  #: tensors of a size that the trace does not know, not counted
    tensors: tuple[SavedTensor, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()


class OutOfMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The moment before an allocation failed. ``held`` sums what was found; more may have been alive."""

    message: str
    asked_bytes: int | None = None
    allocated_bytes: int | None = None  #: by torch's allocator; ``None`` on the CPU
    reserved_bytes: int | None = None
    phase: str = ""
    place: Place = Place()
    held_bytes: int = 0
    groups: tuple[Group, ...] = ()
    tensors: tuple[Held, ...] = ()


class MemoryProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """Memory of one step that was run for it; ``note`` says why a part is missing."""

    peak: Peak | None = None
    phases: tuple[Phase, ...] = ()
    points: tuple[Point, ...] = ()
    lines: tuple[LineMemory, ...] = ()
    saved: Saved | None = None
    out_of_memory: OutOfMemory | None = None
    note: str = ""
