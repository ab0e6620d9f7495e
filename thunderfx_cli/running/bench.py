"""Timing several compilers on one model, interleaved in one process."""

from __future__ import annotations

import copy
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from thunderfx.dynamo.capture import graphs_so_far
from thunderfx.profiling.memory import MemoryMeter
from thunderfx.profiling.timer import StepTimer

from thunderfx_cli.errors import UserCodeError
from thunderfx_cli.loading.model import LoadedModel
from thunderfx_cli.running.check import in_float64, observe_step
from thunderfx_cli.running.contenders import Contender
from thunderfx_cli.running.options import RunOptions
from thunderfx_cli.running.step import backward, clear_gradients, grad_mode, gradient_leaves, loss_of, synchronise
from thunderfx_cli.running.trees import copied
from thunderfx_cli.store.schema import ContenderResult, Reading, Timing


def run_bench(
    loaded: LoadedModel,
    chosen: Sequence[Contender],
    options: RunOptions,
    results: list[ContenderResult],
    say: Callable[[str], None],
) -> None:
    """Compile, warm up, check and time each contender; one that fails keeps its error and the others go on.

    Timed steps are taken in rounds, one step of each contender, with the order rotated from round to round. ``results``
    is filled also where the user interrupts. Raises :class:`UserCodeError` where the model cannot be copied: each
    contender needs parameters of its own.
    """
    entries = [_Entry(contender, _copied(loaded), options) for contender in chosen]
    try:
        _measure(entries, in_float64(_copied(loaded), options.seed, options.backward), options, say)
    finally:
        results += [entry.result() for entry in entries]


def _measure(
    entries: list[_Entry], exact: dict[str, torch.Tensor], options: RunOptions, say: Callable[[str], None]
) -> None:
    for entry in entries:
        say(f"loading: {entry.contender.name}")
        entry.attempt(entry.load)
    for entry in entries:
        say(f"compiling: {entry.contender.name}")
        entry.attempt(entry.prepare)
    for number in range(options.warmup):
        say(f"warm-up {number + 1}/{options.warmup}")
        for entry in entries:
            entry.attempt(entry.step)
    for entry in entries:
        say(f"checking {entry.contender.name}")
        entry.attempt(entry.meter)
        entry.attempt(functools.partial(entry.judge, exact))
    for number in range(options.steps):
        say(f"step {number + 1}/{options.steps}")
        at = number % len(entries)
        for entry in entries[at:] + entries[:at]:
            entry.attempt(entry.timed)


def _copied(loaded: LoadedModel) -> LoadedModel:
    try:
        args, kwargs = copied((loaded.args, loaded.kwargs))
        return dataclasses.replace(loaded, callable=copy.deepcopy(loaded.callable), args=args, kwargs=kwargs)
    except Exception as e:
        raise UserCodeError(f"the model cannot be copied, one for each contender: {type(e).__name__}: {e}") from e


class _Entry:
    def __init__(self, contender: Contender, loaded: LoadedModel, options: RunOptions) -> None:
        self.contender = contender
        self.loaded = loaded
        self.options = options
        self.leaves = gradient_leaves(loaded.callable, loaded.args, loaded.kwargs)
        self.timer = StepTimer(options.device)
        self.memory = MemoryMeter(options.device)
        self.error = ""
        self.first_ms: dict[str, float] = {}
        self.graphs: int | None = None
        self.fallbacks = 0
        self.output_error: float | None = None
        self.gradient_error: float | None = None
        self.compiled: Any = None
        self.inputs = copied((loaded.args, loaded.kwargs))  # steps may change those of ``loaded``, and buffers
        self.buffers = {name: buffer.clone() for name, buffer in self._buffers().items()}

    def _buffers(self) -> dict[str, torch.Tensor]:
        model = self.loaded.callable
        return dict(model.named_buffers()) if isinstance(model, torch.nn.Module) else {}

    def _restore_buffers(self) -> None:
        """Buffers as they were at first, for those that steps did not replace by others."""
        with torch.no_grad():
            for name, buffer in self._buffers().items():
                first = self.buffers.get(name)
                if first is not None and first.shape == buffer.shape:
                    buffer.copy_(first)

    def attempt(self, part: Callable[[], None]) -> None:
        """Do one part; the first failure ends this contender."""
        if self.error:
            return
        try:
            part()
        except Exception as e:
            self.error = f"{type(e).__name__}: {e}"

    def load(self) -> None:
        """Compile next to nothing, so that the first call does not count what a compiler imports."""
        x = torch.ones(2, device=self.options.device, requires_grad=True)
        torch.autograd.backward(self.contender.compiled(lambda x: x * 2)(x).sum())

    def prepare(self) -> None:
        before = graphs_so_far()
        self.compiled = self.contender.compiled(self.loaded.callable)
        start = time.perf_counter_ns()
        loss = self.forward()
        synchronise(self.options.device)
        self.first_ms["first_call"] = (time.perf_counter_ns() - start) / 1e6
        if loss is not None:
            start = time.perf_counter_ns()
            backward(loss)
            synchronise(self.options.device)
            self.first_ms["first_backward"] = (time.perf_counter_ns() - start) / 1e6
        if self.contender.name != "eager":
            self.graphs = graphs_so_far() - before
        self.fallbacks = len(getattr(self.compiled, "fallbacks", ()))

    def forward(self) -> torch.Tensor | None:
        with grad_mode(self.options.backward):
            output = self.compiled(*self.loaded.args, **self.loaded.kwargs)
            return loss_of(self.loaded, output) if self.options.backward else None

    def step(self) -> None:
        clear_gradients(self.leaves)
        loss = self.forward()
        if loss is not None:
            backward(loss)
        synchronise(self.options.device)

    def meter(self) -> None:
        clear_gradients(self.leaves)
        with self.memory.phase("forward"):
            loss = self.forward()
        if loss is not None:
            with self.memory.phase("backward"):
                backward(loss)
        synchronise(self.options.device)

    def judge(self, exact: dict[str, torch.Tensor]) -> None:
        """Errors of one step against eager in float64: the largest over outputs, and over gradients."""
        self._restore_buffers()
        fresh = dataclasses.replace(self.loaded, args=self.inputs[0], kwargs=self.inputs[1])
        seen = observe_step(fresh, self.compiled, self.options.seed, self.options.backward)
        errors = {name: _relative_error(value, exact[name]) for name, value in seen.items() if name in exact}
        outputs = [error for name, error in errors.items() if name.startswith("output") and error is not None]
        gradients = [error for name, error in errors.items() if name.startswith("gradient") and error is not None]
        self.output_error = max(outputs, default=None)
        self.gradient_error = max(gradients, default=None)

    def timed(self) -> None:
        clear_gradients(self.leaves)
        with self.timer.step():
            with self.timer.phase("forward"):
                loss = self.forward()
            if loss is not None:
                with self.timer.phase("backward"):
                    backward(loss)

    def result(self) -> ContenderResult:
        timings = {name: Timing((value,)) for name, value in self.first_ms.items()}
        timings |= {name: Timing(tuple(values)) for name, values in self.timer.samples().items() if values}
        readings = self.memory.readings()
        return ContenderResult(
            name=self.contender.name,
            timings=timings,
            memory={name: Reading(r.value, r.reason, r.source) for name, r in readings.items() if "rss" not in name},
            graphs=self.graphs,
            fallbacks=self.fallbacks,
            output_error=self.output_error,
            gradient_error=self.gradient_error,
            error=self.error,
        )


def _relative_error(value: torch.Tensor, exact: torch.Tensor) -> float | None:
    """``|value - exact| / |exact|`` in the Euclidean norm; ``None`` for what is no floating-point tensor."""
    if not (value.is_floating_point() or value.is_complex()) or value.shape != exact.shape:
        return None
    kind = torch.complex128 if value.is_complex() else torch.float64
    difference, size = (value.to(kind) - exact.to(kind)).norm(), exact.to(kind).norm()
    return float(difference / size) if size > 0 else float(difference)
