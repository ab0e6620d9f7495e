"""The Triton fusion executor.

Private names of torch used here (checked on 2.13): ``select_decomp_table`` of torch/_inductor/decomposition.py, torch's
own table of decompositions to primitive operators.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode

from thunderfx.executors.base import Fusion, FusionExecutor, Region
from thunderfx.executors.decomposed import decomposed
from thunderfx.executors.triton.launch import blocks, full_source, launcher, prepare
from thunderfx.executors.triton.planner import SUPPORTED, Plan, Unsupported
from thunderfx.executors.triton.source import COMPUTE
from thunderfx.trace import BoundSymbol, TensorType

#: Operators that torch's decompositions make of primitive ones.
_COMPOSITE = frozenset(
    "gelu gelu_backward silu silu_backward tanh_backward sigmoid_backward threshold_backward leaky_relu "
    "elu hardtanh native_layer_norm native_layer_norm_backward _softmax _softmax_backward_data _log_softmax "
    "_log_softmax_backward_data _fused_rms_norm masked_fill addcmul addcdiv rsub softplus mse_loss mse_loss_backward "
    "constant_pad_nd slice_scatter select_scatter slice_backward select_backward _to_copy clone detach squeeze "
    "unsqueeze split split_with_sizes unbind var_mean logsumexp lerp hardswish hardsigmoid mish "
    "log_sigmoid_forward".split()
)


class TritonExecutor(FusionExecutor):
    """``"triton"``: pointwise operators, views, reductions and normalisations between the matrix products."""

    name = "triton"

    def __init__(self) -> None:
        if importlib.util.find_spec("triton") is None:
            raise ValueError("executor 'triton' needs the package triton; install thunderfx[triton]")

    def can_fuse(self, line: BoundSymbol) -> bool | str:
        namespace, _, rest = line.symbol.partition(".")
        short = rest.split(".")[0]
        if namespace != "aten" or (short not in SUPPORTED and short not in _COMPOSITE):
            return f"no kernel is generated for {line.symbol}"
        for var in line.defines():
            kind = var.type
            if not isinstance(kind, TensorType):
                return "its result is no tensor"
            if kind.dtype not in COMPUTE:
                return f"Triton does not compute {kind.dtype}"
            if any(isinstance(size, str) for size in kind.shape):
                return "its size is symbolic"
        return True

    def compile(self, region: Region) -> Fusion:
        tensors = [value for value in region.examples if isinstance(value, torch.Tensor)]
        devices = {value.device for value in tensors}
        if len(devices) != 1:
            raise Unsupported("tensors on several devices" if devices else "no tensor to compute from")
        device = devices.pop()
        prepare(device)
        plan, graph = plan_of(region)
        return Fusion(_program(plan, graph, device), _text(plan), statistics(plan))


def plan_of(region: Region) -> tuple[Plan, torch.fx.Graph]:
    """Kernel plans of a region, and the graph of primitive operators that they compute.

    Raises ``Unsupported`` where the graph holds what no kernel is generated for.
    """
    from torch._inductor.decomposition import select_decomp_table

    table = dict(select_decomp_table()) | _OWN
    module = decomposed(region, detect_fake_mode(region.examples), table, functional=True)
    module.graph.eliminate_dead_code()
    return Plan(module.graph), module.graph


def _var_mean(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Two passes over the values, which lie in registers; as accurate as Welford's there."""
    dims = list(range(x.dim())) if dim is None or not dim else dim
    count = math.prod(x.shape[d] for d in dims)
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    variance = (centred * centred).sum(dims, keepdim=True) / max(0, count - (1 if correction is None else correction))
    if keepdim:
        return variance, mean
    return variance.squeeze(dims), mean.squeeze(dims)


_OWN: dict[Any, Callable[..., Any]] = {torch.ops.aten.var_mean.correction: _var_mean}


def _program(plan: Plan, graph: torch.fx.Graph, device: torch.device) -> Callable[[list[Any]], Sequence[Any]]:
    """What allocates the stored tensors, launches the kernels, and returns the outputs."""
    placeholders = {node: at for at, node in enumerate(graph.find_nodes(op="placeholder"))}
    names = {buffer.name: placeholders[node] for node, buffer in plan.inputs.items()}
    made = []
    for at, node in enumerate(plan.stored):
        value = node.meta["val"]
        names[plan.stored[node].name] = len(placeholders) + at
        made.append((tuple(value.shape), tuple(value.stride()), value.dtype))
    launches = [
        (launcher(kernel), [names[buffer.name] for buffer in kernel.buffers]) for kernel in plan.kernels if kernel.rows
    ]
    results: list[Any] = []
    for item in graph.output_node().args[0]:  # type: ignore[union-attr]
        if not isinstance(item, torch.fx.Node):
            results.append((item, None))
            continue
        base = plan.base(item)
        at = placeholders[base] if base in placeholders else names[plan.stored[base].name]
        value, whole = item.meta["val"], base.meta["val"]
        is_same = not isinstance(value, torch.Tensor) or item is base
        layout = None if is_same else (value.shape, value.stride(), value.storage_offset() - whole.storage_offset())
        results.append((at, layout or ()))

    def run(args: list[Any]) -> Sequence[Any]:
        values = [
            *args,
            *(torch.empty_strided(size, stride, dtype=dtype, device=device) for size, stride, dtype in made),
        ]
        args.clear()
        for launch, positions in launches:
            launch([values[at] for at in positions])
        return [
            at if layout is None else _view(values[at], *layout) if layout else values[at] for at, layout in results
        ]

    return run


def _view(base: torch.Tensor, size: Any, stride: Any, moved: int) -> torch.Tensor:
    return base.as_strided(size, stride, base.storage_offset() + moved)


def _text(plan: Plan) -> str:
    """Plan and source of each kernel, for reading."""
    parts = []
    for kernel in plan.kernels:
        sizes, programs, warps = blocks(kernel)
        launch = ", ".join(
            [f"{programs} programs", f"{warps} warps", *(f"{name} {size}" for name, size in sizes.items())]
        )
        comment = "\n".join(f"# {line}" for line in str(kernel).splitlines())
        parts.append(f"{comment}\n# launched with {launch}\n{full_source(kernel)}")
    return "\n\n".join(parts)


def statistics(plan: Plan) -> dict[str, int]:
    """Number of kernels, and bytes that they read and write: each buffer once for each kernel."""
    nodes = {**{b.name: n for n, b in plan.inputs.items()}, **{b.name: n for n, b in plan.stored.items()}}
    moved = sum(
        nodes[buffer.name].meta["val"].numel() * nodes[buffer.name].meta["val"].dtype.itemsize
        for kernel in plan.kernels
        for buffer in kernel.buffers
    )
    return {"kernels": len(plan.kernels), "bytes": moved}
