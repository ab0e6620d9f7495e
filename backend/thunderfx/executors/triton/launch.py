"""Triton source -> what runs a region.

On a CUDA device kernels are compiled by Triton, which keeps them in its own cache. On the CPU they run in Triton's
interpreter, which is for checking, not for speed; it must be chosen before triton is imported.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunderfx.executors.triton.plan import Kernel
from thunderfx.executors.triton.source import source_of

_serial = itertools.count()
#: Elements of a block: a pointwise kernel's, and a row kernel's at least.
POINTWISE_BLOCK = 1024
ROW_BLOCK = 2048
_HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"


def prepare(device: torch.device) -> None:
    """Choose the interpreter for the CPU. Raises ``RuntimeError`` where triton was imported without it."""
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:
            raise RuntimeError("triton was imported to compile; set TRITON_INTERPRET=1 to run kernels on the CPU")
        os.environ["TRITON_INTERPRET"] = "1"


def full_source(kernel: Kernel) -> str:
    return _HEAD + source_of(kernel)


def jitted(kernel: Kernel) -> Any:
    """The kernel as Triton's function; its source is registered with ``linecache``, where Triton reads it."""
    text = full_source(kernel)
    filename = f"<thunderfx triton {kernel.name} {next(_serial)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"__name__": filename}
    exec(compile(text, filename, "exec"), scope)
    return scope[kernel.name]


def blocks(kernel: Kernel) -> tuple[dict[str, int], int, int]:
    """Block sizes, number of programs and of warps (eight elements for each thread where there are so many)."""
    if kernel.columns == 1:
        rows = min(POINTWISE_BLOCK, _power_of_two(kernel.rows))
        sizes, elements = {"ROWS": rows}, rows
    else:
        columns = _power_of_two(kernel.columns)
        rows = max(1, min(ROW_BLOCK // columns, _power_of_two(kernel.rows)))
        sizes, elements = {"ROWS": rows, "COLUMNS": columns}, rows * columns
    warps = max(1, min(16, _power_of_two(elements // 256)))
    return sizes, -(-kernel.rows // rows), warps


def launcher(kernel: Kernel) -> Callable[[Sequence[torch.Tensor]], None]:
    """Runs the kernel on its buffers, in the order of ``kernel.buffers``."""
    function = jitted(kernel)
    sizes, programs, warps = blocks(kernel)

    def launch(buffers: Sequence[torch.Tensor]) -> None:
        function[(programs,)](*buffers, **sizes, num_warps=warps)

    return launch


def _power_of_two(value: int) -> int:
    """The least power of two that is not below ``value``."""
    return 1 << max(0, value - 1).bit_length()
