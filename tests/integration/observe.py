"""One call of a function or module, seen from outside: for comparing compiled with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from thunderfx import thunderfx
from torch.utils import _pytree as pytree


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def observe(make: Callable[[], tuple[Any, tuple[Any, ...]]], compile_fn: Callable[[Any], Any], calls: int) -> list[Any]:
    """Outputs, gradients, inputs and buffers afterwards, and generator state, for each call in turn.

    ``make`` builds the function or module and its arguments from the seed.
    """
    torch.manual_seed(0)
    fn, args = make()
    compiled = compile_fn(fn)
    seen: list[Any] = []
    for _ in range(calls):
        torch.manual_seed(1)
        outputs = tensors(compiled(*args))
        differentiable = [out for out in outputs if out.requires_grad]
        if differentiable:
            torch.stack(
                [(out.abs() if out.is_complex() else out).double().sum() for out in differentiable]
            ).sum().backward()
        seen += [(out.requires_grad, out.detach().clone()) for out in outputs]
        leaves = [*(fn.parameters() if isinstance(fn, torch.nn.Module) else ()), *tensors(args)]
        seen += [leaf.grad.clone() if leaf.is_leaf and leaf.grad is not None else None for leaf in leaves]
        seen += [tensor.detach().clone() for tensor in tensors(args)]
        seen += [buffer.clone() for buffer in fn.buffers()] if isinstance(fn, torch.nn.Module) else []
        seen.append(torch.get_rng_state())
    return seen


def assert_like_eager(make: Callable[[], tuple[Any, tuple[Any, ...]]], *, calls: int = 1) -> None:
    """Compiled and eager show the same."""
    torch._dynamo.reset()
    want = observe(make, lambda fn: fn, calls)
    got = observe(make, thunderfx, calls)
    assert len(want) == len(got)
    for expected, found in zip(want, got, strict=True):
        if isinstance(expected, tuple):
            assert expected[0] == found[0], "requires_grad differs"
            expected, found = expected[1], found[1]
        if expected is None or found is None:
            assert expected is None and found is None, "a gradient is missing"
            continue
        if expected.is_floating_point() and expected.dtype.itemsize == 1:
            expected, found = expected.float(), found.float()
        torch.testing.assert_close(found, expected, equal_nan=True)
