"""What is made of composite operators, before differentiation and when a region is compiled.

Decomposed before differentiation, the min-cut partitioner sees the primitive operators, and has cheap ones recomputed
in the backward rather than saved (what of a cross-entropy is saved are the logits and a number for each row, not the
log-probabilities).

Private names of torch used here (checked on 2.13): ``select_decomp_table`` of torch/_inductor/decomposition.py, torch's
own table of decompositions to primitive operators.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunderfx.executors.triton.philox import native_dropout
from thunderfx.executors.triton.split import parts_of

#: Operators that are decomposed before differentiation, where torch's table has a rule.
COMPOSITE = frozenset(
    """
    _log_softmax _log_softmax_backward_data _softmax _softmax_backward_data _safe_softmax _fused_rms_norm
    _fused_rms_norm_backward native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward
    _batch_norm_with_update _batch_norm_with_update_functional _batch_norm_no_update
    nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward mse_loss mse_loss_backward l1_loss
    smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward binary_cross_entropy
    binary_cross_entropy_backward soft_margin_loss soft_margin_loss_backward
    gelu gelu_backward silu silu_backward mish mish_backward elu elu_backward celu selu hardtanh hardtanh_backward
    hardswish hardswish_backward hardsigmoid hardsigmoid_backward leaky_relu leaky_relu_backward softplus
    softplus_backward tanh_backward sigmoid_backward threshold threshold_backward glu_backward log_sigmoid_forward
    log_sigmoid_backward logit logit_backward hardshrink softshrink _prelu_kernel _prelu_kernel_backward
    addcmul addcdiv lerp rsub masked_fill square stack logsumexp logaddexp xlogy nan_to_num var var_mean std std_mean
    native_dropout_backward select_backward slice_backward tril triu index_select linalg_vector_norm
    """.split()
)
#: Decomposed only when a region is compiled, since the trace reads better with them.
LATER = frozenset("constant_pad_nd _to_copy clone detach squeeze unsqueeze split split_with_sizes unbind".split())


@functools.cache
def _table() -> dict[Any, Callable[..., Any]]:
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table()) | {torch.ops.aten.var_mean.correction: _var_mean}


@functools.cache
def before_differentiation() -> Mapping[Any, Callable[..., Any]]:
    """For AOTAutograd."""
    chosen = {op: rule for op, rule in _table().items() if str(op).startswith("aten.") and _short(op) in COMPOSITE}
    return chosen | {torch.ops.aten.native_dropout.default: native_dropout}


def within_regions() -> Mapping[Any, Callable[..., Any]]:
    """For what is left when a region is compiled."""
    return _table()


def _short(op: Any) -> str:
    return str(op).split(".")[1]


def _var_mean(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Two passes over the values, which lie in registers; as accurate as Welford's there.

    A long row is taken in parts, which are combined as Chan, Golub and LeVeque do (Updating formulae and a pairwise
    algorithm for computing sample variances, 1979): the values are read once.
    """
    dims = [d % x.dim() for d in dim] if dim else list(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims)
    parts = _parts(x, dims, count)
    if parts > 1:
        kept = [d for d in range(x.dim()) if d not in dims]
        apart = x.permute([*kept, *dims]).reshape([*(x.shape[d] for d in kept), parts, count // parts])
        means = apart.mean(-1, keepdim=True)
        centred = apart - means
        within = (centred * centred).sum(-1)
        mean = means.squeeze(-1).mean(-1, keepdim=True)
        between = means.squeeze(-1) - mean
        squares = (within + between * between * (count // parts)).sum(-1)
        shape = [1 if d in dims else x.shape[d] for d in range(x.dim())]
        squares, mean = squares.reshape(shape), mean.reshape(shape)
    else:
        mean = x.mean(dims, keepdim=True)
        centred = x - mean
        squares = (centred * centred).sum(dims, keepdim=True)
    left = count - (1 if correction is None else correction)
    variance = squares / (max(0, left) if isinstance(left, (int, float)) else left)
    if keepdim:
        return variance, mean
    return variance.squeeze(dims), mean.squeeze(dims)


def _parts(x: torch.Tensor, dims: list[int], count: Any) -> int:
    rows = x.numel() // count if isinstance(count, int) and count else 0
    if not isinstance(rows, int) or not rows:
        return 1
    return parts_of(rows, count, x.dim() - 1 not in dims)
