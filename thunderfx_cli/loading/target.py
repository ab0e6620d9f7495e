"""What the user asked to run: ``file.py``, ``file.py:attr`` or ``package.module:attr``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from thunderfx_cli.errors import UsageError

FORMS = "Give file.py, file.py:attr or package.module:attr."
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


@dataclass(frozen=True)
class Target:
    """Exactly one of ``path`` and ``module`` is set; ``module`` always comes with ``attr``."""

    path: Path | None
    module: str | None
    attr: str | None

    def __str__(self) -> str:
        place = str(self.path) if self.path is not None else str(self.module)
        return f"{place}:{self.attr}" if self.attr else place


def parse_target(text: str) -> Target:
    """Read a TARGET argument.

    Raises :class:`UsageError` if it has none of the three forms, or names a file that does not exist.
    """
    if Path(text).is_file():
        return Target(Path(text), None, None)
    place, colon, attr = text.rpartition(":")
    if not colon:
        place, attr = text, ""
    if not place or (colon and not _DOTTED.match(attr)):
        raise UsageError(f"{text!r} is not a target", hint=FORMS)
    if Path(place).is_file():
        return Target(Path(place), None, attr)
    if Path(place).is_dir() and not (attr and _DOTTED.match(place) and Path(place, "__init__.py").is_file()):
        raise UsageError(f"{place} is a directory, not a Python file", hint=_files_in(Path(place)))
    looks_like_path = "/" in place or place.endswith(".py") or not _DOTTED.match(place)
    if not looks_like_path and attr:
        return Target(None, place, attr)
    if not looks_like_path and "." in place:
        raise UsageError(
            f"{place}: no such file, and a module needs the name of the model in it", hint=f"Try {place}:model"
        )
    raise UsageError(f"{place}: no such file", hint=_close_matches(Path(place)) or FORMS)


def _python_files(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".py")
    except OSError:  # an unreadable folder only means that there is nothing to suggest
        return []


def _files_in(folder: Path) -> str:
    names = _python_files(folder)
    return f"It has {', '.join(str(folder / name) for name in names[:5])}." if names else FORMS


def _close_matches(missing: Path) -> str:
    folder = missing.parent
    if not folder.is_dir():
        return f"There is no folder {folder} either."
    wanted = missing.name if missing.suffix == ".py" else f"{missing.name}.py"
    matches = difflib.get_close_matches(wanted, _python_files(folder), n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(str(folder / name) for name in matches)}?" if matches else ""
