"""What Dynamo tells about the graph that it hands over.

Private names of torch used here (checked on 2.13): ``CompileContext`` and ``TracingContext`` of ``torch._guards``,
``num_mutated_inp_runtime_indices`` and ``bw_donated_idxs`` of ``TracingContext.fw_metadata``,
``GraphModule.compile_subgraph_reason`` and ``graph_break_reasons`` of torch/_dynamo/output_graph.py,
``compilation_time_metrics``, ``counters`` and ``get_metrics_context`` of torch/_dynamo/utils.py, ``boxed_nop`` of
torch/_dynamo/backends/debugging.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.debugging import boxed_nop
from torch._guards import CompileContext, TracingContext

from thunderfx.dynamo.subgraph import GraphBreakInfo


def compile_id() -> tuple[str, str]:
    """Dynamo's id of the compilation under way, as text, and the part of it that names the code object."""
    current = CompileContext.current_compile_id()
    if current is None:
        return "", ""
    return str(current), f"{getattr(current, 'compiled_autograd_id', None)}/{getattr(current, 'frame_id', None)}"


def failed_guard() -> str:
    """Why the code under compilation is compiled again, ``""`` for a first compilation."""
    from torch._dynamo.utils import get_metrics_context

    metrics: dict[str, Any] = getattr(get_metrics_context(), "_metrics", {})
    return str(metrics.get("recompile_reason") or "")


def graph_break_of(graph: torch.fx.GraphModule) -> GraphBreakInfo | None:
    """The break that ended this graph, if one did."""
    reason = getattr(graph, "compile_subgraph_reason", None)
    return break_info(reason) if reason is not None and reason.graph_break else None


def break_info(reason: Any) -> GraphBreakInfo:
    """From Dynamo's ``GraphCompileReason``."""
    stack = list(reason.user_stack or ())
    torch_home = os.path.dirname(torch.__file__) + os.sep
    frames = [frame for frame in stack if not frame.filename.startswith(torch_home)] or stack
    if not frames:
        return GraphBreakInfo(str(reason.reason))
    last = frames[-1]
    return GraphBreakInfo(str(reason.reason), last.filename, last.lineno or 0, (last.line or "").strip())


def all_graph_breaks() -> list[GraphBreakInfo]:
    """Every graph break of this process so far, also where no graph came before the break."""
    from torch._dynamo import output_graph

    reasons: list[Any] = getattr(output_graph, "graph_break_reasons", [])
    return [break_info(reason) for reason in reasons]


def graphs_so_far() -> int:
    """Number of graphs that Dynamo has handed to backends in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"].get("unique_graphs", 0))


def dynamo_compile_ms() -> float:
    """Milliseconds that Dynamo has spent compiling in this process, backends included."""
    from torch._dynamo.utils import compilation_time_metrics

    return sum(compilation_time_metrics.get("_compile.compile_inner", ())) * 1e3


def code_of(graph: torch.fx.GraphModule) -> str:
    """``"forward (model.py:12)"`` for the code object under compilation, ``""`` where torch does not tell."""
    context = TracingContext.try_get()
    if context is None:
        return ""
    for node in graph.graph.nodes:
        trace = node.meta.get("stack_trace")
        if trace:
            first = trace.strip().splitlines()[0]
            parts = first.strip().removeprefix("File ").split(", ")
            if len(parts) >= 3:
                file = os.path.basename(parts[0].strip('"'))
                return f"{parts[2].removeprefix('in ')} ({file}:{parts[1].removeprefix('line ')})"
    return ""


def visible_outputs(differentiated: bool, count: int) -> range | None:
    """Positions of the user's ``count`` outputs among those of the forward under compilation; ``None``: all.

    They stand after the new values of inputs that AOTAutograd writes back, and before what is saved.
    """
    metadata = getattr(TracingContext.try_get(), "fw_metadata", None)
    if not differentiated or metadata is None:
        return None
    start = metadata.num_mutated_inp_runtime_indices
    return range(start, start + count)


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """Eager draws no random numbers where everything is dropped (``dropout`` of aten/src/ATen/native/Dropout.cpp)."""
    if p != 1 or train is False:
        return NotImplemented
    return x * 0, torch.zeros_like(x, dtype=torch.bool)


EAGERS_DROPOUT: dict[Any, Callable[..., Any]] = {torch.ops.aten.native_dropout.default: _dropout}


def keep_what_is_saved() -> None:
    """Let no program overwrite tensors that are saved for the backward under compilation.

    torch would refuse a second backward of a kept graph (``retain_graph``) for the sake of backends that do so.
    """
    metadata = getattr(TracingContext.try_get(), "fw_metadata", None)
    if metadata is not None:
        metadata.bw_donated_idxs = []


def run_as_is(graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
    """AOTAutograd's graph as ``aot_eager`` runs it."""
    return boxed_nop(graph, example_inputs)
