"""What each line of a trace costs: bounded aggregates, stored beside the trace and read without torch."""

from __future__ import annotations

import msgspec


class LineCost(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. Times are measured; work and memory follow from the line's types at the sizes of the run.

    ``time_ms`` is the median over the instrumented steps of the line's time in a step (all calls of its subgraph
    together), without the cost of reading the clock; ``None`` where it was not measured. ``mad_ms`` is the median
    absolute deviation of those times.
    """

    time_ms: float | None = None
    mad_ms: float = 0.0
    flops: int | None = (
        None  #: by torch's formula (torch.utils.flop_counter); ``None``: torch has none for the operator
    )
    estimated_flops: int = 0  #: of an operator that torch has no formula for, by the formula of its like
    moved_bytes: int | None = None  #: read and written at least once each; ``None`` where a size is not known
    allocated_bytes: int = 0  #: of new storage; views and in-place operators make none
    freed_bytes: int = 0  #: of storage to which this line (a ``del``) held the last name
    live_bytes: int = 0  #: of what the program made, or was given for itself alone, and holds after the line
    members: tuple[LineCost, ...] = ()  #: of a fusion, in order: work only


class TraceCosts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The lines of one execution trace, ``del`` lines included: ``lines[i]`` belongs to ``bound_symbols[i]``.

    ``whole_ms`` is the median time in a step of the whole program, without marks between its lines, in plain steps
    taken in turns with the instrumented ones; ``sum_ms``, which is to be compared with it, the median over the
    instrumented steps of the sum of the lines in one step. On a machine that is disturbed the sum of the lines' own
    medians is smaller than both: a disturbance hits few lines of each step.
    """

    lines: tuple[LineCost, ...]
    steps: int = 0  #: instrumented steps that called the program
    calls: float = 0.0  #: calls in such a step
    sum_ms: float | None = None
    whole_ms: float | None = None
    mark_ms: float = 0.0  #: what reading the clock once costs, subtracted from each line's time at each call
    clock: str = ""  #: ``"perf_counter_ns"`` or ``"CUDA events"``
    sizes: dict[str, int] = {}  #: symbolic sizes at the run's inputs
    note: str = ""  #: why no time was measured

    @property
    def lines_ms(self) -> float | None:
        """Sum of the lines' times; ``None`` where none was measured."""
        times = [line.time_ms for line in self.lines if line.time_ms is not None]
        return sum(times) if times else None


class Ceilings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the device of a run can do at most, as a small calibration measured it."""

    copy_bytes_per_s: float = 0.0  #: bytes read plus bytes written
    flops_per_s: dict[str, float] = {}  #: of a matrix multiplication, by dtype (``"float32"``)
    launch_ms: float = 0.0  #: of an operator on one element: what a line costs that has nothing to do
    measured: str = ""  #: when, ISO 8601
