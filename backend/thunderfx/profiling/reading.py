"""One measured quantity: a value, or the reason why there is none."""

from __future__ import annotations

import msgspec


class Reading(msgspec.Struct, frozen=True):
    """A value with its source; `value` is None where nothing could be read, never 0 for "unsupported".

    The unit is in the name under which the reading is kept (`_bytes`, `_watts`, `_percent`). `reason` says why
    the value is None; next to a value it says what limits that value (a device that was lost later, say).
    """

    value: float | None
    reason: str = ""
    source: str = ""
