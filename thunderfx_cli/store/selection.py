"""Choosing runs: by target, age and name, in an order."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from thunderfx_cli.errors import UsageError
from thunderfx_cli.store.schema import Run

_AGE = re.compile(r"(\d{1,6})([mhdw])\Z")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_BEGINNING = datetime(1, 1, 2).astimezone()


def parse_since(option: str, text: str) -> datetime:
    """``2d`` (``m``, ``h``, ``d``, ``w``) ago, or a date or time as ISO 8601 writes it, in local time where it names no
    zone. Raises :class:`UsageError` that names ``option``."""
    age = _AGE.match(text)
    try:
        if age:
            return datetime.now().astimezone() - timedelta(**{_UNITS[age[2]]: int(age[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text}: neither an age nor a date", hint="Give 2d, 12h, 30m, 4w, or 2026-12-01."
        ) from None


def created(run: Run) -> datetime:
    """When the run began; for a run that does not say so validly, what its id says, else long ago."""
    try:
        return datetime.fromisoformat(run.created).astimezone()
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.strptime(run.id[:15], "%Y%m%d-%H%M%S").astimezone()
    except (ValueError, OverflowError):
        return _BEGINNING


def matching(
    runs: Sequence[Run], *, target: str | None = None, name: str | None = None, since: datetime | None = None
) -> list[Run]:
    """Runs whose target and name hold these texts or, with ``*`` or ``?``, match them, begun at ``since`` or later."""
    return [
        run
        for run in runs
        if (target is None or _holds(run.target, target))
        and (name is None or _holds(run.name, name))
        and (since is None or created(run) >= since)
    ]


def _holds(text: str, wanted: str) -> bool:
    if "*" in wanted or "?" in wanted:
        return fnmatch.fnmatchcase(text, wanted)
    return wanted in text
