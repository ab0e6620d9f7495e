"""Model mode: compile, first call, warm-up, timed steps, check."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from thunderfx.profiling.memory import MemoryMeter
from thunderfx.profiling.timer import StepTimer

from thunderfx_cli.loading.model import LoadedModel
from thunderfx_cli.loading.user_errors import user_code
from thunderfx_cli.running.check import check_against_eager
from thunderfx_cli.running.line_steps import measure_lines
from thunderfx_cli.running.measured import Measured
from thunderfx_cli.running.memory_step import profile_memory
from thunderfx_cli.running.options import RunOptions
from thunderfx_cli.running.step import backward, clear_gradients, grad_mode, gradient_leaves, loss_of, synchronise
from thunderfx_cli.running.step_parts import StepMarks
from thunderfx_cli.store.schema import CheckResult, Reading


def run_model(
    loaded: LoadedModel,
    options: RunOptions,
    measured: Measured,
    *,
    check: bool,
    say: Callable[[str], None],
    files: list[str],
) -> None:
    """Fill ``measured`` with one model's run; ``say`` is told which phase begins.

    Raises :class:`UserCodeError` where the model or its loss raises.
    """
    compiled = options.compiled(loaded.callable)
    measured.compiled.append(compiled)
    measured.backends.append(compiled._tfx_backend)
    step = _Step(loaded, compiled, options, measured)
    with user_code(files):
        say("compiling: first call")
        step.first()
        for number in range(options.warmup):
            say(f"warm-up {number + 1}/{options.warmup}")
            step.plain()
        say("measuring memory")
        step.metered()
        try:
            for number in range(options.steps):
                say(f"step {number + 1}/{options.steps}")
                step.timed()
        finally:
            step.keep()
        measure_lines(step, options, measured, say)
        say("measuring what held memory")
        measured.memory = profile_memory(loaded, compiled, options, measured)
        if check and not measured.subgraphs:
            measured.check = CheckResult(False, ("not checked: nothing was compiled",))
        elif check:
            say("checking against eager")
            measured.check = check_against_eager(loaded, compiled, seed=options.seed, train=options.backward)


class _Step:
    def __init__(self, loaded: LoadedModel, compiled: Any, options: RunOptions, measured: Measured) -> None:
        self.loaded = loaded
        self.compiled = compiled
        self.device = options.device
        self.train = options.backward
        self.measured = measured
        self.leaves = gradient_leaves(loaded.callable, loaded.args, loaded.kwargs)
        self.timer = StepTimer(options.device)
        self.memory = MemoryMeter(options.device)

    def forward(self) -> Any:
        with grad_mode(self.train):
            output = self.compiled(*self.loaded.args, **self.loaded.kwargs)
            return loss_of(self.loaded, output) if self.train else None

    def parted(self, mark: Callable[[], Any]) -> StepMarks:
        """A step with the clock read between its parts."""
        clear_gradients(self.leaves)
        begin = mark()
        with grad_mode(self.train):
            output = self.compiled(*self.loaded.args, **self.loaded.kwargs)
            called = mark()
            loss = loss_of(self.loaded, output) if self.train else None
        with_loss = mark()
        if loss is not None:
            backward(loss)
        end = mark()
        return StepMarks(begin, end, [(begin, called)], [(called, with_loss)], [(with_loss, end)])

    def first(self) -> None:
        synchronise(self.device)
        start = time.perf_counter_ns()
        loss = self.forward()
        synchronise(self.device)
        self.measured.add_sample("first_call", (time.perf_counter_ns() - start) / 1e6)
        if loss is None:
            if self.train:
                self.measured.warnings.append("no output needs a gradient: there is no backward pass to run")
            return
        start = time.perf_counter_ns()
        backward(loss)
        synchronise(self.device)
        self.measured.add_sample("first_backward", (time.perf_counter_ns() - start) / 1e6)

    def plain(self) -> None:
        clear_gradients(self.leaves)
        loss = self.forward()
        if loss is not None:
            backward(loss)
        synchronise(self.device)

    def metered(self) -> None:
        """A step of its own: reading memory takes longer than a small model's step does."""
        clear_gradients(self.leaves)
        with self.memory.phase("forward"):
            loss = self.forward()
        if loss is not None:
            with self.memory.phase("backward"):
                backward(loss)
        synchronise(self.device)

    def timed(self) -> None:
        clear_gradients(self.leaves)
        with self.timer.step():
            with self.timer.phase("forward"):
                loss = self.forward()
            if loss is not None:
                with self.timer.phase("backward"):
                    backward(loss)

    def keep(self) -> None:
        """Hand over what was measured."""
        self.measured.samples_ms.update({name: list(values) for name, values in self.timer.samples().items() if values})
        self.measured.readings.update(
            {name: Reading(r.value, r.reason, r.source) for name, r in self.memory.readings().items()}
        )
