"""How a kernel is launched: block sizes, warps, and whether it loops over its columns.

The model: a thread works on eight elements or so (one or two accesses of 16 bytes for each of float16 and float32), a
block on at least ``ELEMENTS``; a row stays in registers where it fits; where accesses are contiguous along rows, a
block holds many rows, so that neighbouring threads read neighbouring addresses.
"""

from __future__ import annotations

import dataclasses

from thunderfx.executors.triton.plan import Kernel
from thunderfx.executors.triton.sizes import Size

#: Elements of a block of a pointwise kernel, and of a kernel with columns at least.
POINTWISE, ELEMENTS = 1024, 2048
#: The longest row that stays in registers, and that where a block holds many rows.
MOST_COLUMNS, MOST_COLUMNS_OF_MANY = 16384, 64
#: Columns of a block in a loop.
LOOPED_COLUMNS = 4096
MANY_ROWS = 64


@dataclasses.dataclass(frozen=True)
class Schedule:
    """``columns`` is 0 for a pointwise kernel."""

    rows: int
    columns: int
    is_looped: bool
    warps: int

    @property
    def blocks(self) -> dict[str, int]:
        return {"ROWS": self.rows} | ({"COLUMNS": self.columns} if self.columns else {})

    def __str__(self) -> str:
        sizes = [f"{name} {size}" for name, size in self.blocks.items()]
        return ", ".join([f"{self.warps} warps", *sizes, *(["loop over columns"] if self.is_looped else [])])


def schedule(kernel: Kernel) -> Schedule:
    """The schedule that the model thinks best."""
    most_rows = power_of_two(kernel.rows) if isinstance(kernel.rows, int) else MANY_ROWS * POINTWISE
    if not kernel.has_columns:
        rows = min(POINTWISE, most_rows)
        return Schedule(rows, 0, False, _warps(rows))
    columns = power_of_two(kernel.columns) if isinstance(kernel.columns, int) else 0
    if kernel.contiguous == "m" and most_rows > 1:
        rows = min(MANY_ROWS, most_rows)
        is_looped = not columns or columns > MOST_COLUMNS_OF_MANY
        columns = MOST_COLUMNS_OF_MANY // 2 if is_looped else columns
    else:
        is_looped = not columns or columns > MOST_COLUMNS
        columns = LOOPED_COLUMNS if is_looped else columns
        rows = max(1, min(ELEMENTS // columns, most_rows))
    return Schedule(rows, columns, is_looped, _warps(rows * columns))


def alternatives(kernel: Kernel) -> list[Schedule]:
    """Schedules to try, the model's first; all have the same source."""
    first = schedule(kernel)
    found = [first]
    for factor in (0.5, 2, 4):
        rows = int(first.rows * factor)
        if rows >= 1 and (first.rows > 1 or factor == 2) and rows * max(1, first.columns) <= 4 * MOST_COLUMNS:
            found.append(dataclasses.replace(first, rows=rows, warps=_warps(rows * max(1, first.columns))))
    for warps in (first.warps // 2, first.warps * 2):
        if 1 <= warps <= 16:
            found.append(dataclasses.replace(first, warps=warps))
    return found


def _warps(elements: int) -> int:
    """Of 32 threads, eight elements for each where there are so many; 16 at most."""
    return max(1, min(16, power_of_two(elements // 256)))


def power_of_two(value: Size) -> int:
    """The least power of two that is not below ``value``."""
    return 1 << max(0, int(value) - 1).bit_length()
