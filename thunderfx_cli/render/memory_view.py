"""What held memory in a step: data in, renderables out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from thunderfx.profiling.allocations.model import (
    Group,
    Held,
    MemoryProfile,
    OutOfMemory,
    Peak,
    Phase,
    Place,
    Saved,
    SavedTensor,
)
from thunderfx.trace.printer import one_line

from thunderfx_cli.render.figures import format_bytes, format_count, format_ms
from thunderfx_cli.render.memory_plot import plot

MAX_PLOT = 100
UNCUT = 1 << 20


def render_memory(profile: MemoryProfile, top: int, width: int | None) -> Iterator[RenderableType]:
    """Out of memory, peak, timeline, saved for backward, checkpointing; ``top`` rows of each table.

    ``width`` is that of the terminal, to which sources are cut; ``None``: nothing is cut.
    """
    plot_width = min(width or MAX_PLOT, MAX_PLOT)
    width = width or UNCUT
    if profile.out_of_memory is not None:
        yield from _failure(profile.out_of_memory, top, width)
    if profile.peak is not None:
        yield from _peak(profile.peak, top, width)
    if profile.points:
        yield _heading("Allocated over one step")
        yield Text(plot(profile.points, profile.phases, plot_width))
        yield _phase_table(profile.phases)
    if profile.saved is not None:
        yield from _saved(profile.saved, top, width)
    if profile.note:
        yield Text(one_line(profile.note), style="yellow")


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(*columns: str, left: tuple[int, ...] = (0,)) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for number, column in enumerate(columns):
        if number in left:
            table.add_column(column, no_wrap=True, overflow="ignore")
        else:  # rich does not justify what may overflow
            table.add_column(column, justify="right", no_wrap=True, overflow="crop")
    return table


def _cut(text: str, width: int) -> Text:
    """``text`` on one line, its end left out where it is longer than ``width``."""
    text = one_line(text)
    return Text(text if len(text) <= width else f"{text[: max(1, width - 3)]}...")


def place_text(place: Place) -> str:
    """``"subgraph 0 backward, line 48: aten.mm.default | hidden.1 | mlp.py:27 | x = self.act(layer(x))"``."""
    where = f"subgraph {place.subgraph} {place.direction}, line {place.line}: " if place.subgraph is not None else ""
    return where + " | ".join(part for part in (place.symbol, place.module, source_text(place)) if part)


def source_text(place: Place) -> str:
    """``"mlp.py:27 | x = self.act(layer(x))"``, ``""`` where the place is not in the user's code."""
    if not place.file:
        return ""
    name = place.file.rsplit("/", 1)[-1]
    return f"{name}:{place.number} | {place.source}" if place.source else f"{name}:{place.number}"


def _peak(peak: Peak, top: int, width: int) -> Iterator[RenderableType]:
    yield _heading(f"Peak of one step: {format_bytes(peak.measured_bytes)}")
    yield Text(one_line(f"measured: {peak.source}"))
    share = 100 * peak.named_bytes / peak.measured_bytes
    rest = peak.measured_bytes - peak.named_bytes
    yield Text(f"named below: {format_bytes(peak.named_bytes)} ({share:.1f} %), not named: {format_bytes(rest)}")
    yield Text(one_line(f"reached in {peak.phase}: {place_text(peak.place)}"))
    yield Text("")
    yield _kind_table(peak.groups, peak.measured_bytes)
    yield Text("")
    yield _module_table(peak.groups, top, width)
    yield _heading("Largest tensors at the peak")
    yield _held_table(peak.tensors, top, width)


def _kind_table(groups: Iterable[Group], total: int) -> Table:
    table = _table("kind", "bytes", "share", "tensors")
    sums: dict[str, tuple[int, int]] = {}
    for group in groups:
        size, count = sums.get(group.kind, (0, 0))
        sums[group.kind] = (size + group.bytes, count + group.count)
    for kind in sorted(sums, key=lambda kind: -sums[kind][0]):
        size, count = sums[kind]
        tensors = "" if kind == "unnamed" else str(count)
        table.add_row(Text(one_line(kind)), format_bytes(size), f"{100 * size / max(1, total):.1f} %", tensors)
    return table


#: What the columns of the table by module hold; the rest goes into the last.
_COLUMNS = {
    "parameters": ("parameters", "buffers"),
    "saved": ("saved for backward",),
    "gradients": ("gradients",),
    "optimizer": ("optimizer state",),
}


def _module_table(groups: Iterable[Group], top: int, width: int) -> Table:
    rows: dict[str, dict[str, int]] = {}
    for group in groups:
        column = next((name for name, kinds in _COLUMNS.items() if group.kind in kinds), "other")
        row = rows.setdefault(group.module, {})
        row[column] = row.get(column, 0) + group.bytes
    columns = [name for name in (*_COLUMNS, "other") if any(name in row for row in rows.values())]
    table = _table("module", *columns, "all")
    order = sorted(rows, key=lambda module: -sum(rows[module].values()))
    shown = [(module or "(no module)", rows[module]) for module in order[:top]]
    rest: dict[str, int] = {}
    for module in order[top:]:
        for column, size in rows[module].items():
            rest[column] = rest.get(column, 0) + size
    if rest:
        shown.append((f"{len(order) - top} more", rest))
    for module, row in shown:
        cells = [format_bytes(row[column]) if column in row else "-" for column in columns]
        table.add_row(_cut(module, max(12, width - 13 * (len(columns) + 1))), *cells, format_bytes(sum(row.values())))
    return table


def _held_table(tensors: tuple[Held, ...], top: int, width: int) -> Table:
    table = _table("bytes", "kind", "tensor", "from", left=(1, 2, 3))
    shown = tensors[:top]
    name_width = _name_width((_typed(item) for item in shown), width)
    room = width - 10 - 2 - max((len(item.kind) for item in shown), default=0) - 2 - name_width - 2
    for item in shown:
        source = source_text(item.place) or (item.place.symbol if item.place.subgraph is None else "")
        where = " | ".join(part for part in (item.place.module, source) if part)
        if item.kind in ("parameters", "buffers"):
            where = ""
        table.add_row(
            format_bytes(item.bytes), Text(one_line(item.kind)), _cut(_typed(item), name_width), _cut(where, room)
        )
    return table


def _typed(item: Held | SavedTensor) -> str:
    return f"{item.name}: {item.type}" if item.type else item.name


def _name_width(names: Iterable[str], width: int) -> int:
    """Room for the widest name; on a terminal little more than a third of it."""
    longest = max((len(one_line(name)) for name in names), default=0)
    return longest if width >= UNCUT else min(longest, max(16, width * 2 // 5))


def _phase_table(phases: tuple[Phase, ...]) -> Table:
    reserves = any(phase.reserved_peak_bytes is not None for phase in phases)
    table = _table("phase", "peak", "at its end", *(("reserved peak",) if reserves else ()), "time, watched")
    for phase in phases:
        reserved = phase.reserved_peak_bytes
        cells = [format_bytes(phase.peak_bytes), format_bytes(phase.end_bytes)]
        if reserves:
            cells.append("-" if reserved is None else format_bytes(reserved))
        table.add_row(Text(one_line(phase.name)), *cells, format_ms(phase.end_ms - phase.start_ms))
    return table


def _saved(saved: Saved, top: int, width: int) -> Iterator[RenderableType]:
    yield _heading(f"Saved for backward: {format_bytes(saved.bytes)} in {format_count(saved.count, 'tensor')}")
    yield Text(one_line(saved.source))
    if saved.unknown:
        yield Text(f"not counted: {format_count(saved.unknown, 'tensor')} of a size that the trace does not know")
    table = _table("bytes", "share", "tensor", "from", left=(2, 3))
    shown = saved.tensors[:top]
    name_width = _name_width((_typed(item) for item in shown), width)
    for item in shown:
        where = " | ".join(part for part in (item.place.module, source_text(item.place)) if part)
        share = f"{100 * item.bytes / max(1, saved.bytes):.1f} %"
        table.add_row(
            format_bytes(item.bytes), share, _cut(_typed(item), name_width), _cut(where, width - name_width - 23)
        )
    yield table
    if saved.count > len(shown):
        yield Text(f"and {format_count(saved.count - len(shown), 'more tensor')}", style="dim")
    if saved.checkpoints:
        yield _heading("If a module were checkpointed (estimate)")
        table = _table("module", "modules", "saved by its lines", "freed", "of all saved")
        for chosen in saved.checkpoints[:top]:
            table.add_row(
                _cut(chosen.module, max(12, width - 56)),
                str(chosen.modules),
                format_bytes(chosen.saved_bytes),
                format_bytes(chosen.freed_bytes),
                f"{100 * chosen.freed_bytes / max(1, saved.bytes):.1f} %",
            )
        yield table
        yield Text("freed until the backward recomputes it, module by module", style="dim")


def _failure(failure: OutOfMemory, top: int, width: int) -> Iterator[RenderableType]:
    yield _heading("Out of memory")
    yield _cut(failure.message, 3 * width)
    asked = f"asked for {format_bytes(failure.asked_bytes)}" if failure.asked_bytes is not None else ""
    state = [asked] if asked else []
    if failure.allocated_bytes is not None:
        state.append(f"allocated before: {format_bytes(failure.allocated_bytes)}")
    if failure.reserved_bytes is not None:
        state.append(f"reserved: {format_bytes(failure.reserved_bytes)}")
    if state:
        yield Text(", ".join(state))
    where = place_text(failure.place)
    if where:
        yield Text(one_line(f"at {where}"))
    yield Text(f"found alive: {format_bytes(failure.held_bytes)}")
    if failure.groups:
        yield Text("")
        yield _kind_table(failure.groups, failure.held_bytes)
        yield Text("")
        yield _module_table(failure.groups, top, width)
        yield _heading("Largest tensors alive")
        yield _held_table(failure.tensors, top, width)
