"""A metric over stored runs: a plot for a terminal, a table for all else."""

from __future__ import annotations

from collections.abc import Iterator

from thunderfx.trace.printer import one_line

from thunderfx_cli.history import Change, History, Point, Series
from thunderfx_cli.render.columns import aligned, shortened
from thunderfx_cli.render.figures import format_bytes, format_count, format_ms

#: Rows of a plot, its axes included.
HEIGHT = 16
_COMMIT = 7
_TICK_COLUMNS = 10
_MAX_TEXT = 200


def render_history(history: History, *, width: int | None) -> Iterator[str]:
    """The series of the newest run, plotted within ``width`` columns or as a table where that is ``None``; then the
    changes of its level, and one line for each series that was kept apart."""
    shown, *others = history.series
    if width is None or len(shown.points) == 1:
        body, unit = list(_table(history, shown)), ""
    else:
        body, unit = plot(history, shown, width)
    yield f"{one_line(history.metric)}{unit} over {format_count(len(shown.points), 'run')}"
    yield one_line(_settings(shown.configuration))
    yield ""
    yield from body
    yield ""
    yield from _changes(history, shown)
    if others:
        yield f"not in it, as what was run or where differs ({len(others)} other series):"
        yield from (f"  {line}" for line in map(_other, [shown] * len(others), others))
    if history.without:
        yield f"{format_count(history.without, 'run')} without {one_line(history.metric)}"


def _settings(configuration: dict[str, str]) -> str:
    """What a series shares, in words; the names of target and device would say nothing."""
    plain = ("target", "device", "device_name")
    return ", ".join(
        value[:_MAX_TEXT] if name in plain else f"{name.replace('_', ' ')} {value[:_MAX_TEXT]}"
        for name, value in configuration.items()
        if value
    )


def _other(shown: Series, other: Series) -> str:
    keys = dict.fromkeys([*shown.configuration, *other.configuration])
    values = [(key, other.configuration.get(key, "none")) for key in keys]
    differing = {key: value for key, value in values if value != shown.configuration.get(key, "none")}
    return one_line(f"{format_count(len(other.points), 'run')}: {_settings(differing)}")


def format_value(value: float, unit: str) -> str:
    """A value of a metric with its unit."""
    if unit == "ms":
        return format_ms(value)
    if unit == "bytes":
        return format_bytes(value)
    return f"{value:g}" if unit == "count" else f"{value:g} {unit}"


def _commit(point: Point | Change) -> str:
    return one_line(point.commit[:_COMMIT]) or "-"


def _table(history: History, series: Series) -> Iterator[str]:
    changes = {change.at.index: number for number, change in enumerate(series.changes, 1)}
    rows: list[tuple[str, ...]] = [("run", "name", "when", "git", one_line(history.metric), "")]
    for index, point in enumerate(series.points):
        mark = f"<- change {changes[index]}" if index in changes else ""
        texts = (point.run, point.name, point.created[:19].replace("T", " "))
        commit = _commit(point) + ("*" if point.dirty else "")
        cells = [one_line(shortened(text, _MAX_TEXT)) for text in texts]
        rows.append((*cells, commit, format_value(point.value, history.unit), mark))
    yield from aligned(rows, right=frozenset({4}))
    if any(point.dirty for point in series.points):
        yield "* the tree had changes that were not committed"


def plot(history: History, series: Series, width: int) -> tuple[list[str], str]:
    """Points of a series as characters, a vertical line at each change, commits below; and the unit of its axis."""
    import plotext

    scale, label = _scale(max(abs(point.value) for point in series.points), history.unit)
    values = [point.value / scale for point in series.points]
    places = list(range(len(values)))
    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plot_size(width, HEIGHT)
    plotext.theme("clear")
    plotext.scatter(places, values, marker="dot")
    for change in series.changes:
        plotext.vline(change.at.index - 0.5)
    every = max(1, -(-len(places) * _TICK_COLUMNS // width))
    ticks = places[::-1][::every]
    margin = _COMMIT / 2 * len(places) / width  # so that the last commit fits under the last point
    plotext.xlim(-margin, len(places) - 1 + margin)
    plotext.xticks(ticks, [_commit(series.points[tick]) for tick in ticks])
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    plotext.ylim(low - room, high + room)
    lines = str(plotext.uncolorize(plotext.build())).rstrip("\n").split("\n")
    return [line.rstrip() for line in lines], f" ({label})"


def _scale(largest: float, unit: str) -> tuple[float, str]:
    """What values are divided by for the axis, and the unit that they then have."""
    if unit == "bytes":
        for name, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if largest >= size:
                return float(size), name
    if unit == "ms" and largest >= 1000:
        return 1000.0, "s"
    return (0.001, "us") if unit == "ms" and 0 < largest < 1 else (1.0, unit)


def _changes(history: History, series: Series) -> Iterator[str]:
    if not series.changes:
        yield "no change of level found" if len(series.points) > 1 else "one run: nothing to compare"
    for number, change in enumerate(series.changes, 1):
        at = change.at
        relative = f" ({(at.after - at.before) / abs(at.before):+.1%})" if at.before else ""
        values = f"{format_value(at.before, history.unit)} -> {format_value(at.after, history.unit)}{relative}"
        sure = "" if at.p_value is None else f", p = {at.p_value:.2g}"
        yield f"change {number}: {values}{sure}"
        around = f"; {', '.join(change.surroundings)}" if change.surroundings else ""
        yield one_line(f"  from run {change.run}, git {_commit(change)}{around}")
