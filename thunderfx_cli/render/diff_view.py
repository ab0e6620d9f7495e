"""The difference of two runs as lines of text. Whatever comes from a stored run is escaped and never markup."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rich.text import Text
from thunderfx.trace.diff import DiffEntry, DiffLine, TraceDiff
from thunderfx.trace.printer import one_line

from thunderfx_cli.comparison import DirectionDiff, Metric, RunDiff, SubgraphDiff

STYLES = {"added": "green", "removed": "red", "changed": "yellow", "equal": "dim"}
VERDICT_STYLES = {"better": "green", "worse": "red"}
COMMENT = "italic dim"
MISSING = "-"
MOST_NAMES = 6  #: operators that a row of several lines names


def render_run_diff(diff: RunDiff, *, context: int = 1) -> Iterator[Text]:
    """Lines of the whole comparison."""
    yield Text.assemble("before  ", (one_line(diff.before), "bold"))
    yield Text.assemble("after   ", (one_line(diff.after), "bold"))
    yield Text()
    if not diff.subgraphs:
        yield Text("traces: neither run has any")
    elif diff.traces_equal:
        yield Text("traces: no differences", "green")
    else:
        for subgraph in diff.subgraphs:
            yield from _render_subgraph(subgraph, context)
    yield from _render_environment(diff)
    yield Text()
    yield from _render_metrics(diff.metrics)


def _render_subgraph(subgraph: SubgraphDiff, context: int) -> Iterator[Text]:
    code = f" {one_line(subgraph.code)}" if subgraph.code else ""
    if subgraph.before is None or subgraph.after is None:
        kind, number = ("added", subgraph.after) if subgraph.before is None else ("removed", subgraph.before)
        yield Text(f"subgraph {number}{code}: {kind} ({subgraph.lines} lines)", STYLES[kind])
        yield Text()
        return
    numbers = str(subgraph.after) if subgraph.before == subgraph.after else f"{subgraph.before} -> {subgraph.after}"
    for direction in subgraph.directions:
        head = Text(f"subgraph {numbers}{code}, {direction.direction}: ", "bold")
        yield head.append(_summary(direction))
        if direction.diff is not None and not direction.diff.is_empty:
            yield from render_trace_diff(direction.diff, context=context)
        yield Text()


def _summary(direction: DirectionDiff) -> str:
    diff = direction.diff
    if diff is None:
        return one_line(direction.note)
    if diff.is_empty:
        return "no differences"
    moved = diff.only_executor
    counts = {"removed": diff.removed, "added": diff.added, "changed": diff.changed - moved}
    counts["run by another executor"] = moved
    counts["modules renamed"] = len(diff.renamed_modules)
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _executor_rows(entries: list[DiffEntry]) -> Iterator[DiffEntry | Text]:
    """The entries, with lines in a row that only changed their executor as one row."""
    for changed, group in itertools.groupby(entries, key=_executors):
        if changed is None:
            yield from group
            continue
        rows = list(group)
        names = dict.fromkeys(row.after.text.partition(" = ")[2].partition("(")[0] for row in rows if row.after)
        shown = ", ".join(list(names)[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
        count = f"{len(rows)} line{'s' if len(rows) > 1 else ''}"
        yield Text(one_line(f"  ~ {count} now run by {changed[1]}, before by {changed[0]}: {shown}"), STYLES["changed"])


def _executors(entry: DiffEntry) -> tuple[str, str] | None:
    """Executor before and after, where nothing else changed."""
    if entry.aspects != ("executor",) or entry.before is None or entry.after is None:
        return None
    return entry.before.executor, entry.after.executor


def render_trace_diff(diff: TraceDiff, *, context: int = 1) -> Iterator[Text]:
    """Differences in unified form: ``-`` before, ``+`` after, each under the user's source line."""
    for before, after in diff.renamed_modules:
        yield Text(f"  module {one_line(before)} is now {one_line(after)}", STYLES["changed"])
    for number, hunk in enumerate(diff.hunks(context)):
        if number:
            yield Text("  ...", COMMENT)
        origin = ""
        for entry in _executor_rows(hunk):
            if isinstance(entry, Text):
                yield entry
                continue
            for mark, line, kind, note in _marked(entry):
                if entry.part == "line" and line.origin != origin:
                    origin = line.origin
                    yield Text(f"    # {one_line(origin)}" if origin else "    # no source line", COMMENT)
                yield _render_line(mark, entry.part, line, kind, note)


def _marked(entry: DiffEntry) -> Iterator[tuple[str, DiffLine, str, str]]:
    """Mark, line, style and note of each printed row of an entry."""
    if entry.kind == "changed" and entry.before is not None and entry.after is not None:
        yield "-", entry.before, "removed", ""
        yield "+", entry.after, "added", f"{', '.join(entry.aspects)} changed"
    elif entry.kind == "removed" and entry.before is not None:
        yield "-", entry.before, "removed", ""
    elif entry.after is not None:
        yield ("+" if entry.kind == "added" else " "), entry.after, entry.kind, ""


def _render_line(mark: str, part: str, line: DiffLine, kind: str, note: str) -> Text:
    label = "input " if part == "input" else ""
    out = Text(f"  {mark} {label}{line.text}", STYLES[kind])
    if line.comment:
        out.append(f"  # {line.comment}", COMMENT)
    if note:
        out.append(f"  <- {note}", STYLES["changed"])
    return out


def _render_environment(diff: RunDiff) -> Iterator[Text]:
    if not diff.environment:
        return
    yield Text()
    if not diff.timings_comparable:
        yield Text("warning: the runs' environments differ; their timings are not comparable", "bold yellow")
    width = max(len(change.field) for change in diff.environment)
    for change in diff.environment:
        before, after = one_line(change.before) or MISSING, one_line(change.after) or MISSING
        yield Text(f"  {change.field.ljust(width)}  {before} -> {after}")


# -- figures


def _render_metrics(metrics: tuple[Metric, ...]) -> Iterator[Text]:
    rows = [("", "before", "after", "change", "relative", "")]
    rows += [_metric_row(metric) for metric in metrics]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5))]
        out = Text("  ".join(cells), "bold" if number == 0 else "")
        out.append(f"  {row[5]}" if row[5] else "", VERDICT_STYLES.get(row[5], "dim"))
        out.rstrip()
        yield out


def _metric_row(metric: Metric) -> tuple[str, str, str, str, str, str]:
    before, after = format_value(metric.before, metric.unit), format_value(metric.after, metric.unit)
    change = MISSING if metric.change is None else format_value(metric.change, metric.unit, sign=True)
    relative = MISSING if metric.relative is None else f"{metric.relative:+.1%}"
    whose, colon, name = one_line(metric.name).rpartition(": ")
    name = whose + colon + name.removesuffix(f"_{metric.unit}").replace("_", " ")
    return name, before, after, change, relative, one_line(metric.verdict)


def format_value(value: float | None, unit: str, *, sign: bool = False) -> str:
    """A value with its unit; bytes in binary multiples."""
    if value is None:
        return MISSING
    plus = "+" if sign else ""
    if unit == "count":
        return f"{value:{plus}.0f}"
    if unit == "ms":
        return f"{value:{plus}.3f} ms"
    if unit != "bytes":
        return f"{value:{plus}.1f} {one_line(unit)}"
    for prefix in ("", "Ki", "Mi"):
        if abs(value) < 1024:
            return f"{value:{plus}.0f} B" if not prefix else f"{value:{plus}.1f} {prefix}B"
        value /= 1024
    return f"{value:{plus}.1f} GiB"
