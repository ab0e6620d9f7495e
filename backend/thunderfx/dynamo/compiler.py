"""The TorchDynamo backend."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException

from thunderfx.codegen import boxed
from thunderfx.dynamo.capture import (
    EAGERS_DROPOUT,
    code_of,
    compile_id,
    failed_guard,
    graph_break_of,
    keep_what_is_saved,
    run_as_is,
    visible_outputs,
)
from thunderfx.dynamo.direct import Programs, direct
from thunderfx.dynamo.limits import eager_reason
from thunderfx.dynamo.partition import partition
from thunderfx.dynamo.reproducer import example_of, save_reproducers
from thunderfx.dynamo.subgraph import FallbackInfo, SubgraphInfo
from thunderfx.executors import Executor, resolve_executors
from thunderfx.lowering import input_sources, lower_graph, raise_graph
from thunderfx.lowering.value_types import saved_bytes
from thunderfx.passes.fuse import Fusing
from thunderfx.passes.pipeline import Transform, at_level, run_stage, run_stages, transform_name
from thunderfx.passes.stage import Stage

_log = logging.getLogger("thunderfx")


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection: a large trace makes many objects that live, each of which would be walked again and again
    with all that Dynamo keeps. It made the time per line of a model of 128 layers 1.7 times that of one of 8."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class ThunderCompileError(RuntimeError):
    """One of our stages failed under ``strict=True``; the cause is chained."""


class ThunderCompiler:
    """A backend for ``torch.compile``: ``torch.compile(model, backend=ThunderCompiler())``.

    ``executors`` names what may run lines, in order of preference. ``transforms`` are called with each forward and
    each backward trace, those marked ``@transform(level="torch")`` with the trace of the Dynamo graph. Where a stage of
    ours fails, that direction of the subgraph runs as AOTAutograd's graph and ``SubgraphInfo.fallbacks`` says why;
    ``strict=True`` raises :class:`ThunderCompileError` instead.

    ``subgraph_infos`` holds one record for each Dynamo graph, in order of compilation.
    """

    def __init__(
        self,
        *,
        executors: Sequence[str | Executor] | None = None,
        transforms: Sequence[Transform] = (),
        strict: bool = False,
    ) -> None:
        self.executors = resolve_executors(executors)
        self.transforms = tuple(transforms)
        for transform in self.transforms:
            if not callable(transform):
                raise TypeError(f"a transform is a callable that takes and returns a TraceCtx, not {transform!r}")
        self.strict = strict
        self.subgraph_infos: list[SubgraphInfo] = []
        self._last_of_code: dict[str, tuple[str, int]] = {}

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
        """Compile one Dynamo graph. ``options`` are what ``torch.compile`` was given for its backend."""
        start = time.perf_counter_ns()
        info = self._new_subgraph(graph, options)
        sources = self._acquire(info, graph, example_inputs)

        reason = eager_reason(graph)
        graph = self._transform(info, graph)
        if reason is not None:
            return self._run_in_eager(info, graph, reason)

        programs = Programs()
        user_outputs = len(graph.graph.output_node().all_input_nodes)

        def forward(module: torch.fx.GraphModule, inputs: list[Any], differentiated: bool = True) -> Any:
            info.needs_backward = differentiated
            program = self._compile(info, "forward", module, inputs, sources, user_outputs)
            programs.set_forward(program, inputs, differentiated)
            return program

        def backward(module: torch.fx.GraphModule, inputs: list[Any]) -> Any:
            keep_what_is_saved()
            program = self._compile(info, "backward", module, inputs, sources, user_outputs)
            programs.set_backward(program, module)
            return program

        try:
            compiled: Callable[..., Any] = aot_autograd(
                fw_compiler=forward,
                bw_compiler=backward,
                inference_compiler=functools.partial(forward, differentiated=False),
                partition_fn=partition,
                decompositions=self._decompositions(),
                keep_inference_input_mutations=True,
            )(graph, example_inputs)
        except TorchDynamoException:  # Dynamo's own control flow: it starts this code again, with other sizes fixed
            self.subgraph_infos.remove(info)
            raise
        except ThunderCompileError:
            raise
        except Exception as e:
            if self.strict:
                raise
            return self._run_in_eager(info, graph, f"{type(e).__name__}: {e}")
        info.compile_ms = (time.perf_counter_ns() - start) / 1e6
        return direct(compiled, programs)

    def save_reproducer_to_folder(self, folder: str | Path, use_pytest_benchmark: bool = False) -> list[Path]:
        """Write a script for each subgraph that runs it in eager and compiled, and compares; returns their paths.

        A script holds the torch-level trace as it came from Dynamo, before transforms, and makes random inputs of the
        recorded shapes, strides, dtypes and devices from a fixed seed: it does not hold the model's weights. With
        ``use_pytest_benchmark`` it times eager, aot_eager, inductor and thunderfx instead. It needs torch and this
        package alone (the benchmark form pytest and pytest-benchmark too).

        Raises :class:`ReproducerError` where a subgraph refers to what a script cannot rebuild, after those that can be
        written were.
        """
        return save_reproducers(self.subgraph_infos, Path(folder), benchmark=use_pytest_benchmark)

    def _run_in_eager(self, info: SubgraphInfo, graph: torch.fx.GraphModule, reason: str) -> Callable[..., Any]:
        """Run Dynamo's graph itself: torch cannot differentiate it ahead of time, or not rightly."""
        if self.strict:
            raise ThunderCompileError(f"subgraph {info.index} cannot run compiled: {reason}")
        info.in_eager = True
        for direction in ("forward", "backward"):
            info.stages[direction].clear()
        info.fallbacks.append(FallbackInfo("graph", "AOTAutograd", reason))
        _log.warning("subgraph %d (%s) runs in eager: %s", info.index, info.code, reason.splitlines()[0])
        return graph.forward

    def _decompositions(self) -> dict[Any, Callable[..., Any]]:
        """Of all executors; where two name the same operator, the one that is preferred."""
        return EAGERS_DROPOUT | {
            op: rule for executor in reversed(self.executors) for op, rule in executor.decompositions().items()
        }

    def _new_subgraph(self, graph: torch.fx.GraphModule, options: dict[str, Any]) -> SubgraphInfo:
        whole_id, code_id = compile_id()
        info = SubgraphInfo(index=len(self.subgraph_infos), compile_id=whole_id, options=dict(options))
        previous = self._last_of_code.get(code_id) if code_id else None
        if previous is not None and previous[0] != whole_id:
            info.replaces = previous[1]
            info.recompile_reason = failed_guard()
        if code_id:
            self._last_of_code[code_id] = (whole_id, info.index)
        self.subgraph_infos.append(info)
        return info

    @_collector_paused()
    def _acquire(self, info: SubgraphInfo, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> list[str]:
        """Record the torch-level trace; returns what each input of the Dynamo graph is called by the user."""
        start = time.perf_counter_ns()
        try:
            info.code = code_of(graph)
            info.graph_break = graph_break_of(graph)
            info.examples = [example_of(value) for value in example_inputs]
            sources = input_sources(graph.graph)
            trace = lower_graph(graph, "graph", sources=sources, provenance="torch-level graph from Dynamo")
        except Exception as e:
            self._fall_back(info, "graph", "torch", e)
            return []
        info.inputs = [(var.source or var.name, var.type) for var in trace.inputs]
        info.stages["graph"].append(Stage("torch", trace, (time.perf_counter_ns() - start) / 1e6))
        return sources

    def _transform(self, info: SubgraphInfo, graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """The graph after the transforms of the torch level; where one of them fails, as it was before all of them."""
        before = info.trace("graph")
        stage = "torch"
        try:
            trace = before
            rewrites = [(transform_name(transform), transform) for transform in at_level(self.transforms, "torch")]
            rewrites += [
                (executor.name, executor.rewrite)
                for executor in self.executors
                if type(executor).rewrite is not Executor.rewrite
            ]
            for name, rewrite in rewrites:
                if trace is not None:
                    stage = f"torch:{name}"
                    trace = run_stage(stage, rewrite, trace, info.stages["graph"].append)
            return graph if trace is None or trace is before else raise_graph(trace, graph)
        except Exception as e:
            self._fall_back(info, "graph", stage, e)
            return graph

    @_collector_paused()
    def _compile(
        self,
        info: SubgraphInfo,
        direction: str,
        module: torch.fx.GraphModule,
        inputs: list[Any],
        sources: list[str],
        user_outputs: int,
    ) -> Callable[..., Any]:
        """AOTAutograd's graph of one direction as a boxed callable; ``user_outputs`` counts Dynamo's outputs."""
        stage = direction
        start = time.perf_counter_ns()

        def record(done: Stage) -> None:
            nonlocal stage
            info.stages[direction].append(done)
            stage = f"after {done.name}"

        if direction == "backward":
            info.saved_for_backward_bytes = saved_bytes(module)
            info.backward_compiled_late = info.compile_ms > 0
            _take_strides(module, inputs)
        try:
            values: dict[str, Any] = {}
            trace = lower_graph(
                module, direction, dynamo_sources=sources, provenance=f"{direction}, as differentiated", values=values
            )
            record(Stage(direction, trace, (time.perf_counter_ns() - start) / 1e6))
            fusing = Fusing(
                self.executors,
                values,
                differentiated=info.needs_backward,
                visible=visible_outputs(info.needs_backward, user_outputs) if direction == "forward" else None,
                on_failure=lambda executor, error: self._fall_back(info, direction, executor.name, error),
            )
            trace = run_stages(trace, self.transforms, record, self.executors, fusing)
            stage = "codegen"
            start = time.perf_counter_ns()
            program = info.programs[direction] = boxed(trace)
            info.codegen_ms[direction] = (time.perf_counter_ns() - start) / 1e6
        except Exception as e:
            self._fall_back(info, direction, stage, e)
            program = run_as_is(module, inputs)
        return counting(program, info) if direction == "backward" else program

    def _fall_back(self, info: SubgraphInfo, where: str, stage: str, error: Exception) -> None:
        if self.strict:
            raise ThunderCompileError(f"subgraph {info.index}, {where}, {stage}: {error}") from error
        info.fallbacks.append(FallbackInfo(where, stage, f"{type(error).__name__}: {error}"))


def _take_strides(backward: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Have placeholders say what they will be given: a fused forward may save other strides than were traced."""
    for node, given in zip(backward.graph.find_nodes(op="placeholder"), inputs, strict=False):
        if isinstance(given, torch.Tensor):
            node.meta["val"] = given


def counting(program: Callable[..., Any], info: SubgraphInfo) -> Callable[..., Any]:
    """Count calls, so that a backward that never ran can be told from one that did."""

    def backward(args: list[Any]) -> Any:
        info.backward_calls += 1
        return program(args)

    backward._boxed_call = True  # type: ignore[attr-defined]
    return backward
