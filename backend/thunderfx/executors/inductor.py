"""Regions, or whole forward and backward traces, through Inductor: C++ on the CPU, Triton on a GPU.

Lines are decomposed as Inductor wants them when a region is compiled, not before differentiation, so that the trace
stays as with the torch executor. Compiled kernels are kept in Inductor's own cache.

Private names of torch used here (checked on 2.13): ``compile_fx_inner``, ``_recursive_joint_graph_passes`` and
``get_static_input_idxs`` of torch/_inductor/compile_fx.py, ``select_decomp_table`` of torch/_inductor/decomposition.py,
``TracingContext.report_output_strides``, ``CompiledFxGraph.source_code``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode

from thunderfx.executors.base import Fusion, FusionExecutor, Region
from thunderfx.executors.decomposed import decomposed
from thunderfx.trace import BoundSymbol, TensorType
from thunderfx.trace.bound_symbol import bodies_in

_KERNEL = re.compile(r"^\w+ = async_compile\.\w+\(", re.MULTILINE)
_LAYOUTS = frozenset({"strided"})


class InductorExecutor(FusionExecutor):
    """``"inductor"``. It stands for ``torch.compile``'s default backend, with eager's random numbers."""

    name = "inductor"
    takes_whole = True

    def can_fuse(self, line: BoundSymbol) -> bool | str:
        namespace, _, rest = line.symbol.partition(".")
        if namespace != "aten" and not line.symbol.startswith(
            ("torch.ops.prims.", "torch.ops.higher_order.flex", "math.")
        ):
            return line.symbol.startswith(("operator.", "torch.sym_")) or f"{line.symbol} is not known to it"
        if any(True for arg in line.args for _ in bodies_in(arg)) and "flex" not in line.symbol:
            return "it holds a body of its own"
        for var in line.defines():
            if isinstance(var.type, TensorType) and var.type.layout not in _LAYOUTS:
                return f"its result is {var.type.layout}"
            if isinstance(var.type, TensorType) and var.type.dtype in ("complex64", "complex128", "complex32"):
                return "Inductor runs complex numbers operator by operator"
        return rest not in _SIZES_FROM_DATA or "the size of its result depends on data"

    def compile(self, region: Region) -> Fusion:
        from torch._inductor import compile_fx, config
        from torch._inductor.decomposition import select_decomp_table

        fake_mode = detect_fake_mode(region.examples)
        with contextlib.ExitStack() as stack:
            stack.enter_context(config.patch(fallback_random=True))
            if fake_mode is not None:
                stack.enter_context(torch._inductor.virtualized.V.set_fake_mode(fake_mode))
            if not region.is_whole and TracingContext.try_get() is not None:
                stack.enter_context(TracingContext.report_output_strides())  # they are not the strides of a direction
            stack.enter_context(torch.no_grad())
            graph = decomposed(region, fake_mode, select_decomp_table())
            graph = compile_fx._recursive_joint_graph_passes(graph, input_device=_device(region))
            output = graph.graph.output_node()
            output.meta["user_visible_output_idxs"] = list(region.visible)
            compiled: Any = compile_fx.compile_fx_inner(
                graph,
                list(region.examples),
                static_input_idxs=_static_inputs(region),
                # Of a backward AOTAutograd says by position which inputs may be overwritten; a region has others.
                is_backward=region.is_whole and region.direction == "backward",
                is_inference=not region.differentiated,
            )
        source = getattr(compiled, "source_code", "")
        return Fusion(compiled, source, {"kernels": len(_KERNEL.findall(source))})


#: Results of these have sizes that only their data tells.
_SIZES_FROM_DATA = frozenset(
    "nonzero.default masked_select.default _unique2.default unique_dim.default unique_consecutive.default "
    "_local_scalar_dense.default item.default repeat_interleave.Tensor bincount.default".split()
)


def _device(region: Region) -> torch.device:
    return next((value.device for value in region.examples if isinstance(value, torch.Tensor)), torch.device("cpu"))


def _static_inputs(region: Region) -> Sequence[int]:
    """Inputs at fixed addresses, which are parameters and buffers; no more is known of regions."""
    return ()
