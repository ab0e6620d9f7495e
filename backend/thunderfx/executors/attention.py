"""Attention by the plain formula as one operator with one backward operator.

``softmax(q @ k^T * scale + mask) @ v`` as torch's ``_scaled_dot_product_attention_math`` computes it
(aten/src/ATen/native/transformers/attention.cpp): the scale is split over both factors, rows without any allowed key
give zeros, and dropout draws what ``native_dropout`` draws, so that values and random numbers are eager's. Heads that
share a key head are computed as rows of one product, so that keys and values are never repeated.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def _grouped(q: Tensor, k: Tensor) -> Tensor:
    """``q [B, H, L, E]`` as ``[B, K, H/K * L, E]`` for ``K`` key heads; itself where each head has its own."""
    groups = q.shape[1] // k.shape[1] if q.dim() == 4 else 1
    return q if groups == 1 else q.reshape(q.shape[0], k.shape[1], groups * q.shape[2], q.shape[3])


def _bias(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    if is_causal:
        allowed = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
        return scores.masked_fill(~allowed, -math.inf)
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask


def _factor(q: Tensor, scale: float | None) -> float:
    return math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)


@torch.library.custom_op("thunderfx::attention", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Output ``[B, H, L, Ev]``, probabilities ``[B, H, L, S]``, and which of them dropout kept (empty for none)."""
    heads = (*q.shape[:-1], k.shape[-2])
    factor = _factor(q, scale)
    scores = ((_grouped(q, k) * factor) @ (k.transpose(-2, -1) * factor)).reshape(heads)
    probabilities = torch.ops.aten._safe_softmax(_bias(scores, mask, is_causal), -1)
    kept, used = probabilities.new_empty(0, dtype=torch.bool), probabilities
    if dropout_p == 1:  # eager draws nothing then
        used, kept = torch.zeros_like(probabilities), torch.zeros_like(probabilities, dtype=torch.bool)
    elif dropout_p > 0:
        used, kept = torch.ops.aten.native_dropout(probabilities, dropout_p, True)
    out = (_grouped(used, k) @ v).reshape(*q.shape[:-1], v.shape[-1])
    return out, probabilities, kept


@attention.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    probabilities = q.new_empty(*q.shape[:-1], k.shape[-2])
    kept = torch.empty_like(probabilities, dtype=torch.bool) if dropout_p > 0 else q.new_empty(0, dtype=torch.bool)
    return q.new_empty(*q.shape[:-1], v.shape[-1]), probabilities, kept


@torch.library.custom_op("thunderfx::attention_backward", mutates_args=())
def attention_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    probabilities: Tensor,
    kept: Tensor,
    dropout_p: float,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of ``q``, ``k``, ``v`` and of ``mask`` (empty where it is none or boolean)."""
    factor = _factor(q, scale)
    used = probabilities
    if dropout_p > 0:
        used = probabilities * kept * (0.0 if dropout_p == 1 else 1 / (1 - dropout_p))
    rows = _grouped(grad, k)
    grad_v = _grouped(used, k).transpose(-2, -1) @ rows
    grad_used = (rows @ v.transpose(-2, -1)).reshape(probabilities.shape)
    if dropout_p > 0:
        grad_used = torch.ops.aten.native_dropout_backward(
            grad_used, kept, 0.0 if dropout_p == 1 else 1 / (1 - dropout_p)
        )
    grad_scores = torch.ops.aten._softmax_backward_data(grad_used, probabilities, -1, probabilities.dtype)
    grad_mask = q.new_empty(0)
    if mask is not None and mask.dtype is not torch.bool:
        grad_mask = grad_scores.sum_to_size(mask.shape).to(mask.dtype).clone()
    rows = _grouped(grad_scores, k)
    grad_q = ((rows @ (k * factor)) * factor).reshape(q.shape)
    grad_k = (rows.transpose(-2, -1) @ (_grouped(q, k) * factor)) * factor
    return grad_q, grad_k, grad_v, grad_mask


@attention_backward.register_fake
def _(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    probabilities: Tensor,
    kept: Tensor,
    dropout_p: float,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    has_mask = mask is not None and mask.dtype is not torch.bool
    grad_mask = mask.new_empty(mask.shape) if mask is not None and has_mask else q.new_empty(0)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), grad_mask


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, mask, ctx.dropout_p, _, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask, *output[1:])


def _backward(ctx: Any, grad: Tensor, _probabilities: Any, _kept: Any) -> tuple[Tensor | None, ...]:
    q, k, v, mask, probabilities, kept = ctx.saved_tensors
    found = torch.ops.thunderfx.attention_backward(grad, q, k, v, mask, probabilities, kept, ctx.dropout_p, ctx.scale)
    grad_mask = found[3] if mask is not None and mask.requires_grad else None
    return found[0], found[1], found[2], grad_mask, None, None, None


attention.register_autograd(_backward, setup_context=_setup)
