"""Tensors inside a model's inputs and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree


def tensors_in(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Path and tensor for each tensor in nested containers, dataclasses and ModelOutputs."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_in(item, f"{path}[{index}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name), f"{path}.{field.name}")


def copied(value: Any) -> Any:
    """``value`` with its tensors copied, each a leaf with the same ``requires_grad``."""

    def copy(tensor: Any) -> Any:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, copy, value)


def cast(value: Any, dtype: torch.dtype) -> Any:
    """``value`` with its floating-point tensors in ``dtype``."""

    def convert(tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor
        return tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(torch.Tensor, convert, value)
