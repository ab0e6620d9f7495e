"""The Triton fusion executor."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._guards import detect_fake_mode

from thunderfx.executors.base import Fusion, FusionExecutor, Region
from thunderfx.executors.decomposed import decomposed
from thunderfx.executors.triton.choices import CHOICES
from thunderfx.executors.triton.decompositions import COMPOSITE, LATER, before_differentiation, within_regions
from thunderfx.executors.triton.expressions import OTHERS
from thunderfx.executors.triton.launch import prepare
from thunderfx.executors.triton.nodes import REDUCTIONS, Unsupported
from thunderfx.executors.triton.planner import Plan
from thunderfx.executors.triton.pointwise import BITWISE, COMPARISONS, EXPRESSIONS, LOGICAL
from thunderfx.executors.triton.program import program, statistics, symbols_of, text_of_plan
from thunderfx.executors.triton.source import COMPUTE
from thunderfx.executors.triton.views import VIEWS
from thunderfx.trace import BoundSymbol, TensorType

_FUSIBLE = (
    frozenset(VIEWS)
    | frozenset(REDUCTIONS)
    | frozenset(CHOICES)
    | frozenset(EXPRESSIONS)
    | frozenset(COMPARISONS)
    | frozenset(LOGICAL)
    | frozenset(BITWISE)
    | OTHERS
    | COMPOSITE
    | LATER
)
_NAMESPACES = ("aten.", "torch.ops.prims.", "torch.ops.thunderfx.")


class TritonExecutor(FusionExecutor):
    """``"triton"``: pointwise operators, views, reductions and normalisations between the matrix products.

    ``autotune``: the first launch of a kernel at given sizes tries other block sizes and numbers of warps and keeps the
    fastest (on a GPU).
    """

    name = "triton"

    def __init__(self, *, autotune: bool = False) -> None:
        if importlib.util.find_spec("triton") is None:
            raise ValueError("executor 'triton' needs the package triton; install thunderfx[triton]")
        self.autotune = autotune

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        return before_differentiation()

    def can_fuse(self, line: BoundSymbol) -> bool | str:
        namespace = next((each for each in _NAMESPACES if line.symbol.startswith(each)), None)
        short = line.symbol[len(namespace) :].split(".")[0] if namespace else ""
        if short not in _FUSIBLE:
            return f"no kernel is generated for {line.symbol}"
        for var in line.defines():
            kind = var.type
            if not isinstance(kind, TensorType):
                return "its result is no tensor"
            if kind.dtype not in COMPUTE:
                return f"Triton does not compute {kind.dtype}"
        return True

    def compile(self, region: Region) -> Fusion:
        tensors = [value for value in region.examples if isinstance(value, torch.Tensor)]
        devices = {value.device for value in tensors}
        if len(devices) != 1:
            raise Unsupported("tensors on several devices" if devices else "no tensor to compute from")
        device = devices.pop()
        prepare(device)
        plan, graph = plan_of(region)
        hints = symbols_of(plan, graph).hints
        run = program(plan, graph, device, autotune=self.autotune and device.type == "cuda")
        return Fusion(run, text_of_plan(plan, hints), statistics(plan, hints))


def plan_of(region: Region) -> tuple[Plan, torch.fx.Graph]:
    """Kernel plans of a region, and the graph of primitive operators that they compute.

    Raises :class:`Unsupported` where the graph holds what no kernel is generated for.
    """
    module = decomposed(region, detect_fake_mode(region.examples), within_regions(), functional=True)
    module.graph.eliminate_dead_code()
    return Plan(module.graph), module.graph
