"""One training step of the user's model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from thunderfx_cli.errors import UserCodeError
from thunderfx_cli.loading.model import LoadedModel
from thunderfx_cli.running.trees import tensors_in


def module_behind(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What was compiled, where ``fn`` wraps it as ``torch.compile`` does; its names carry no prefix."""
    found: Callable[..., Any] = getattr(fn, "_orig_mod", fn)
    return found


def parameters_of(fn: Callable[..., Any]) -> dict[str, torch.nn.Parameter]:
    fn = module_behind(fn)
    return dict(fn.named_parameters()) if isinstance(fn, torch.nn.Module) else {}


def gradient_leaves(fn: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
    """Every leaf that a backward pass fills: parameters by name, inputs as ``input[0]``."""
    leaves: dict[str, torch.Tensor] = {n: p for n, p in parameters_of(fn).items() if p.requires_grad}
    for path, tensor in (*tensors_in(args, "input"), *tensors_in(kwargs, "input")):
        if tensor.requires_grad and tensor.is_leaf:
            leaves[path] = tensor
    return leaves


def clear_gradients(leaves: dict[str, torch.Tensor]) -> None:
    for leaf in leaves.values():
        leaf.grad = None


def loss_of(loaded: LoadedModel, output: Any) -> torch.Tensor | None:
    """The user's ``loss(output)``, or the sum of the outputs that have a gradient; ``None`` where none has."""
    if loaded.loss is not None:
        loss = loaded.loss(output)
        if not isinstance(loss, torch.Tensor):
            raise UserCodeError(f"loss(output) returned {type(loss).__name__}, not a tensor")
        return loss if loss.requires_grad else None
    parts = [tensor for _, tensor in tensors_in(output) if tensor.requires_grad]
    if not parts:
        return None
    sums = [part.abs().sum() if part.is_complex() else part.float().sum() for part in parts]
    return sums[0] if len(sums) == 1 else torch.stack([part.double() for part in sums]).sum()


def backward(loss: torch.Tensor) -> None:
    """Run backward; a loss that is not a scalar is summed first."""
    torch.autograd.backward(loss if loss.numel() == 1 else loss.sum())


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def grad_mode(enabled: bool) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if enabled else torch.no_grad()
