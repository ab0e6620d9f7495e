"""Times of the lines of compiled programs, in steps of their own.

For a marked step each program gives way to the same printed program with the clock read between its lines; for a
bracketed step the clock is read before and after the whole program. What reading the clock costs is measured and
subtracted from each line. On CUDA the clock is a recorded event: nothing waits between lines, and a kernel that spins
holds the stream until the host has launched the program, so that the time between two events is the device's own.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

from thunderfx.profiling.clock import Clock, Mark
from thunderfx.profiling.sizes import sizes_of
from thunderfx.trace import TraceCtx
from thunderfx.trace.bound_symbol import DEL

if TYPE_CHECKING:
    import torch

_Program = Callable[[list[Any]], Any]


@dataclasses.dataclass
class Timed:
    """One program and what was measured of it. Lists hold one entry for each step that called it."""

    trace: TraceCtx
    program: Any  #: of ``thunderfx.codegen.boxed``
    direction: str
    lines_ms: list[list[float]] = dataclasses.field(default_factory=list)  #: by line, per marked step
    calls: list[int] = dataclasses.field(default_factory=list)  #: in a marked step
    whole_ms: list[float] = dataclasses.field(default_factory=list)  #: per bracketed step
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    host_ms: float = 0.0  #: longest time that the host took for a marked call


@dataclasses.dataclass(frozen=True)
class Span:
    """One call of a whole program."""

    timed: Timed
    begin: Mark
    end: Mark


class LineTimer:
    """Measures the programs that ``add`` names; between steps they run as they were compiled."""

    def __init__(self, device: str | torch.device) -> None:
        self.clock = Clock(device)
        self.timed: list[Timed] = []
        self._marked: dict[int, _Program] = {}
        self._calls: list[tuple[Timed, list[Mark]]] = []
        self._spans: list[Span] = []
        self._filler: Any = None
        self._mark_ms: float | None = None
        self._measuring: str | None = None

    def add(self, trace: TraceCtx, program: Any, direction: str) -> Timed:
        """Measure ``program``, which was compiled from ``trace``, from the next step on."""
        timed = Timed(trace, program, direction, [[] for _ in trace.bound_symbols])
        self.timed.append(timed)
        return timed

    @property
    def mark_ms(self) -> float:
        """What one reading of the clock costs: the median distance of readings with nothing between them."""
        if self._mark_ms is None:
            self._mark_ms = self._empty_ms()
        return self._mark_ms

    @contextmanager
    def marked(self, *, keep: bool = True) -> Iterator[None]:
        """A step with the clock read between lines; ``keep=False`` for one that warms the marked programs up."""
        self._begin()
        before = [(timed, timed.program.replace(self._marked_program(timed))) for timed in self.timed]
        try:
            yield
        finally:
            self._end(before)
        self.clock.wait()
        if keep:
            self._add_marked()
        self._calls.clear()

    @contextmanager
    def bracketed(self) -> Iterator[list[Span]]:
        """A step with the clock read before and after each program; the spans are complete when it has ended."""
        spans: list[Span] = []
        self._begin()
        before = []
        for timed in self.timed:
            original = timed.program.replace(None)
            timed.program.replace(_bracket(original, timed, self.clock.mark, spans))
            before.append((timed, original))
        try:
            yield spans
        finally:
            self._end(before)
        self.clock.wait()
        sums: dict[int, float] = {}
        for span in spans:
            sums[id(span.timed)] = sums.get(id(span.timed), 0.0) + self.clock.elapsed_ms(span.begin, span.end)
        for timed in self.timed:
            if id(timed) in sums:
                timed.whole_ms.append(sums[id(timed)])

    def _begin(self) -> None:
        if self._measuring:
            raise RuntimeError("a step is already being measured")
        self._measuring = "step"

    def _end(self, before: Sequence[tuple[Timed, _Program]]) -> None:
        self._measuring = None
        for timed, program in before:
            timed.program.replace(program)

    def _marked_program(self, timed: Timed) -> _Program:
        from thunderfx.codegen import compiled

        program = self._marked.get(id(timed))
        if program is None:
            inner = compiled(timed.trace, probe=self._probe(timed))

            def call(args: list[Any]) -> Any:
                if not timed.host_ms:
                    timed.sizes.update(sizes_of(timed.trace, args))
                start = time.perf_counter_ns()
                outputs = inner(args)
                timed.host_ms = max(timed.host_ms, (time.perf_counter_ns() - start) / 1e6)
                return outputs

            program = self._marked[id(timed)] = call
        return program

    def _probe(self, timed: Timed) -> _HostProbe | _EventProbe:
        def record(marks: list[Mark]) -> None:
            self._calls.append((timed, marks))

        return _EventProbe(record, lambda: self._hold(timed)) if self.clock.on_cuda else _HostProbe(record)

    def _hold(self, timed: Timed) -> None:
        from thunderfx.profiling.cuda_queue import QueueFiller

        self._filler = self._filler or QueueFiller()
        self._filler.hold(1.5 * timed.host_ms + 0.1)

    def _add_marked(self) -> None:
        sums: dict[int, list[float]] = {}
        counts: dict[int, int] = {}
        for timed, marks in self._calls:
            totals = sums.setdefault(id(timed), [0.0] * len(timed.trace.bound_symbols))
            counts[id(timed)] = counts.get(id(timed), 0) + 1
            for number, time_ms in zip(_numbers(timed.trace, marks), self._intervals(marks), strict=True):
                totals[number] += max(0.0, time_ms - self.mark_ms)
        for timed in self.timed:
            if id(timed) in sums:
                timed.calls.append(counts[id(timed)])
                for samples, total in zip(timed.lines_ms, sums[id(timed)], strict=True):
                    samples.append(total)

    def _intervals(self, marks: list[Mark]) -> list[float]:
        return [self.clock.elapsed_ms(begin, end) for begin, end in itertools.pairwise(marks)]

    def _empty_ms(self) -> float:
        found: list[list[Mark]] = []
        probe = _EventProbe(found.append, self._hold_for_empty) if self.clock.on_cuda else _HostProbe(found.append)
        lines = [probe.enter, *(probe.after(number) for number in range(200)), probe.leave]
        scope = dict(probe.scope)
        exec("def empty():\n  " + "\n  ".join(lines), scope)
        for _ in range(5):
            scope["empty"]()
        self.clock.wait()
        return median(interval for marks in found[1:] for interval in self._intervals(marks))

    def _hold_for_empty(self) -> None:
        from thunderfx.profiling.cuda_queue import QueueFiller

        self._filler = self._filler or QueueFiller()
        self._filler.hold(10.0)


def _numbers(trace: TraceCtx, marks: Sequence[Mark]) -> Sequence[int]:
    """Which lines the intervals between ``marks`` are: all, or the only one of a program that is one call."""
    if len(marks) == len(trace.bound_symbols) + 1:
        return range(len(trace.bound_symbols))
    return [number for number, line in enumerate(trace.bound_symbols) if line.symbol != DEL]


def _bracket(program: _Program, timed: Timed, mark: Callable[[], Mark], spans: list[Span]) -> _Program:
    def call(args: list[Any]) -> Any:
        begin = mark()
        outputs = program(args)
        spans.append(Span(timed, begin, mark()))
        return outputs

    return call


class _HostProbe:
    """The host's clock after each line."""

    enter = "__marks__ = []; __mark__ = __marks__.append; __mark__(__now__())"
    leave = "__record__(__marks__)"

    def __init__(self, record: Callable[[list[Mark]], None]) -> None:
        self.scope: dict[str, Any] = {"__now__": time.perf_counter_ns, "__record__": record}

    def before(self, number: int) -> str:
        return ""

    def after(self, number: int) -> str:
        return "__mark__(__now__())"


class _EventProbe:
    """An event on the current stream after each line; ``hold`` keeps the stream busy from the start."""

    enter = "__marks__ = __hold__(); __mark__ = __marker__(__marks__); __mark__()"
    leave = "__record__(__marks__)"

    def __init__(self, record: Callable[[list[Mark]], None], hold: Callable[[], None]) -> None:
        import torch

        event = torch.cuda.Event

        def begin() -> list[Mark]:
            hold()
            return []

        def marker(marks: list[Mark]) -> Callable[[], None]:
            def mark() -> None:
                made = event(enable_timing=True)  # type: ignore[no-untyped-call]
                made.record()
                marks.append(made)

            return mark

        self.scope: dict[str, Any] = {"__hold__": begin, "__marker__": marker, "__record__": record}

    def before(self, number: int) -> str:
        return ""

    def after(self, number: int) -> str:
        return "__mark__()"
