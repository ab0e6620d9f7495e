"""The allocator's timeline as characters."""

from __future__ import annotations

from collections.abc import Sequence

from thunderfx.profiling.allocations.model import Phase, Point

from thunderfx_cli.render.figures import format_bytes

HEIGHT = 12


def plot(points: Sequence[Point], phases: Sequence[Phase], width: int) -> str:
    """Allocated bytes over the changes of a step, which are evenly spaced: the time of a watched step says little.

    A tick of the lower axis marks where a phase begins.
    """
    import plotext

    unit, _name = _unit(max(point.allocated_bytes for point in points))
    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(width, HEIGHT)
    plotext.theme("clear")
    values = [point.allocated_bytes / unit for point in points]
    plotext.plot(list(range(len(values))), values, marker="braille")
    plotext.ylim(0, max(values) * 1.05)
    begins = {phase.name: _first_at(points, phase.start_ms) for phase in phases}
    plotext.xticks(list(begins.values()), list(begins))
    top = max(values)
    ticks = [0.0, top / 2, top]
    plotext.yticks(ticks, [format_bytes(tick * unit) for tick in ticks])
    return str(plotext.uncolorize(plotext.build())).rstrip("\n")


def _unit(largest: int) -> tuple[int, str]:
    for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if largest >= size:
            return size, name
    return 1, "B"


def _first_at(points: Sequence[Point], time_ms: float) -> int:
    return next((number for number, point in enumerate(points) if point.time_ms >= time_ms), len(points) - 1)
