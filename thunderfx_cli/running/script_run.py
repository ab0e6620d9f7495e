"""Script mode: the user's program runs as it is, its compile calls go through our backend."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thunderfx import ThunderCompiler
from thunderfx.dynamo.entry import TORCH_COMPILE_OPTIONS

from thunderfx_cli.loading.script import run_script
from thunderfx_cli.running.measured import Measured
from thunderfx_cli.running.memory_step import estimate_memory
from thunderfx_cli.running.options import RunOptions
from thunderfx_cli.running.step import synchronise


def run_program(
    path: Path,
    argv: Sequence[str],
    options: RunOptions,
    measured: Measured,
    *,
    compile_name: str | None,
    say: Callable[[str], None],
) -> int:
    """Run the script; returns its exit code. What it compiled is in ``measured``."""

    def wrap_compile(fn: Callable[..., Any], **kwargs: Any) -> Any:
        taken = TORCH_COMPILE_OPTIONS - {"mode", "options"}
        compiled = options.compiled(fn, **{k: v for k, v in kwargs.items() if k in taken and v is not None})
        measured.compiled.append(compiled)
        type(compiled)._tfx_func = staticmethod(_TimedCall(compiled._tfx_func, options, measured))
        return compiled

    def on_compiled(_compiled: Any, backend: Any) -> None:
        if isinstance(backend, ThunderCompiler) and not any(known is backend for known in measured.backends):
            measured.backends.append(backend)

    say(f"running {path.name}")
    start = time.perf_counter_ns()
    try:
        result = run_script(path, argv, wrap_compile=wrap_compile, on_compiled=on_compiled, compile_name=compile_name)
        return result.exit_code
    finally:
        measured.add_sample("script", (time.perf_counter_ns() - start) / 1e6)
        measured.memory = estimate_memory(measured)


class _TimedCall:
    """Times each call of a compiled object: the first apart, the others as ``forward``."""

    def __init__(self, func: Callable[..., Any], options: RunOptions, measured: Measured) -> None:
        self._func = func
        self._device = options.device
        self._measured = measured
        self._phase = "first_call"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        synchronise(self._device)
        start = time.perf_counter_ns()
        result = self._func(*args, **kwargs)
        synchronise(self._device)
        self._measured.add_sample(self._phase, (time.perf_counter_ns() - start) / 1e6)
        self._phase = "forward"
        return result

    forward = __call__  #: what a compiled module calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._func, name)
