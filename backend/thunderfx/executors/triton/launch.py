"""Triton source -> what runs a kernel.

On a CUDA device kernels are compiled by Triton, which keeps them in its own cache. On the CPU they run in Triton's
interpreter, which is for checking, not for speed; it must be chosen before triton is imported.
"""

from __future__ import annotations

import itertools
import linecache
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from thunderfx.executors.triton.cost import Schedule, alternatives, schedule
from thunderfx.executors.triton.plan import Kernel
from thunderfx.executors.triton.sizes import hint
from thunderfx.executors.triton.source import source_of

_serial = itertools.count()
_HEAD = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
#: Positions from here on need 64 bits; blocks reach beyond the end of a tensor.
_NARROW = 2**31 - 2**20

#: Runs a kernel on its buffers with the values of symbols.
Launcher = Callable[[Sequence[torch.Tensor], Mapping[str, int]], None]


def prepare(device: torch.device) -> None:
    """Choose the interpreter for the CPU. Raises ``RuntimeError`` where triton was imported without it."""
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:
            raise RuntimeError("triton was imported to compile; set TRITON_INTERPRET=1 to run kernels on the CPU")
        os.environ["TRITON_INTERPRET"] = "1"


def full_source(kernel: Kernel) -> str:
    return _HEAD + source_of(kernel, schedule(kernel).is_looped)


def jitted(kernel: Kernel) -> Any:
    """The kernel as Triton's function; its source is registered with ``linecache``, where Triton reads it."""
    text = full_source(kernel)
    filename = f"<thunderfx triton {kernel.name} {next(_serial)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"__name__": filename}
    exec(compile(text, filename, "exec"), scope)
    return scope[kernel.name]


def is_wide(buffers: Sequence[torch.Tensor]) -> bool:
    """Whether positions in a buffer need 64 bits."""
    return any(
        sum((size - 1) * stride for size, stride in zip(b.shape, b.stride(), strict=True)) >= _NARROW for b in buffers
    )


def launcher(kernel: Kernel, *, autotune: bool = False) -> Launcher:
    """Runs the kernel; with ``autotune`` the first launch at given sizes tries the model's alternatives."""
    function, chosen = jitted(kernel), schedule(kernel)
    blocks: dict[str, Any] = dict(chosen.blocks)
    if autotune:
        import triton

        configs = [triton.Config(other.blocks, num_warps=other.warps) for other in alternatives(kernel)]
        function, blocks = triton.autotune(configs, key=kernel.symbols)(function), {}
    else:
        blocks["num_warps"] = chosen.warps
    symbols = kernel.symbols

    def launch(buffers: Sequence[torch.Tensor], values: Mapping[str, int]) -> None:
        rows = hint(kernel.rows, values)
        if rows:
            sizes = {name: values[name] for name in symbols}
            grid = lambda meta: (-(-rows // meta["ROWS"]),)  # noqa: E731
            function[grid](*buffers, **sizes, WIDE=is_wide(buffers), **blocks)

    return launch


def programs(kernel: Kernel, chosen: Schedule, values: Mapping[str, int]) -> int:
    """Number of blocks."""
    return -(-hint(kernel.rows, values) // chosen.rows)
