"""torch's own backends with their graphs kept as traces, so that two compilers can be compared on one model.

Private names of torch used here (checked on 2.13): ``compile_fx`` of torch/_inductor/compile_fx.py with its argument
``inner_compile``, which is given the graphs of AOTAutograd after Inductor's decompositions, and ``current_callable`` of
what it returns; ``torch._functorch.config.enable_autograd_cache``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd

from thunderfx.dynamo.capture import run_as_is
from thunderfx.dynamo.compiler import ThunderCompiler, counting
from thunderfx.dynamo.subgraph import SubgraphInfo
from thunderfx.lowering import lower_graph
from thunderfx.lowering.value_types import saved_bytes
from thunderfx.passes.liveness import insert_dels
from thunderfx.passes.stage import Stage
from thunderfx.trace import TensorType, TraceCtx

#: Backends whose graphs can be kept.
RECORDED = ("eager", "aot_eager", "inductor")


class RecordingCompiler(ThunderCompiler):
    """``backend`` is one of :data:`RECORDED`: its program runs, and the traces show what it was given.

    ``eager`` has the torch-level trace only. Raises ``ValueError`` for another name.
    """

    def __init__(self, backend: str) -> None:
        if backend not in RECORDED:
            raise ValueError(f"unknown backend {backend!r}; known: {', '.join(RECORDED)}")
        super().__init__()
        self.backend = backend

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
        start = time.perf_counter_ns()
        info = self._new_subgraph(graph, options)
        sources = self._acquire(info, graph, example_inputs)
        keep = functools.partial(self._keep, info, sources)
        try:
            compiled = self._compiled(info, graph, example_inputs, keep)
        except torch._dynamo.exc.TorchDynamoException:
            self.subgraph_infos.remove(info)
            raise
        info.compile_ms = (time.perf_counter_ns() - start) / 1e6
        return compiled

    def _compiled(
        self, info: SubgraphInfo, graph: torch.fx.GraphModule, example_inputs: list[Any], keep: Callable[..., None]
    ) -> Callable[..., Any]:
        if self.backend == "eager":
            trace = info.trace("graph")
            info.in_eager = True
            if trace is not None:
                info.stages["forward"].append(Stage("execution", _shown(trace.replace(name="forward"), "torch"), 0.0))
            return graph.forward
        if self.backend == "inductor":
            from torch._inductor import compile_fx

            def inner(module: torch.fx.GraphModule, inputs: Any, **given: Any) -> Any:
                info.needs_backward |= not given.get("is_inference", False)
                is_backward = bool(given.get("is_backward"))
                keep("backward" if is_backward else "forward", module)
                program: Any = compile_fx.compile_fx_inner(module, inputs, **given)
                if is_backward:
                    program.current_callable = counting(program.current_callable, info)
                return program

            # With a whole subgraph from AOTAutograd's cache on disk there would be no graphs to keep.
            with torch._functorch.config.patch(enable_autograd_cache=False):
                whole: Any = compile_fx.compile_fx(graph, example_inputs, inner_compile=inner)
            return whole  # type: ignore[no-any-return]

        def forward(module: torch.fx.GraphModule, inputs: Any, differentiated: bool = True) -> Any:
            info.needs_backward = differentiated
            keep("forward", module)
            return run_as_is(module, inputs)

        def backward(module: torch.fx.GraphModule, inputs: Any) -> Any:
            keep("backward", module)
            return counting(run_as_is(module, inputs), info)

        aot: Callable[..., Any] = aot_autograd(
            fw_compiler=forward,
            bw_compiler=backward,
            inference_compiler=functools.partial(forward, differentiated=False),
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
        )(graph, example_inputs)
        return aot

    def _keep(self, info: SubgraphInfo, sources: list[str], direction: str, module: torch.fx.GraphModule) -> None:
        """Record the graph of one direction, as it is given to the backend."""
        start = time.perf_counter_ns()
        try:
            trace = lower_graph(module, direction, dynamo_sources=sources, provenance=f"{direction}, of AOTAutograd")
        except Exception as e:
            self._fall_back(info, direction, "recording", e)
            return
        if direction == "backward":
            info.saved_for_backward_bytes = saved_bytes(module)
            info.backward_compiled_late = info.compile_ms > 0
        info.stages[direction].append(Stage(direction, trace, (time.perf_counter_ns() - start) / 1e6))
        executor = "inductor" if self.backend == "inductor" else "torch"
        info.stages[direction].append(Stage("execution", _shown(insert_dels(trace), executor), 0.0))


def _shown(trace: TraceCtx, executor: str) -> TraceCtx:
    """``trace`` with its lines run by ``executor``; AOTAutograd's inputs require no gradient, and so these do not."""
    lines = tuple(msgspec.structs.replace(line, executor=executor) for line in trace.bound_symbols)
    inputs = tuple(
        msgspec.structs.replace(var, type=msgspec.structs.replace(var.type, requires_grad=False))
        if isinstance(var.type, TensorType)
        else var
        for var in trace.inputs
    )
    return trace.replace(inputs=inputs, bound_symbols=lines, provenance=f"{trace.name}, as given to the backend")
