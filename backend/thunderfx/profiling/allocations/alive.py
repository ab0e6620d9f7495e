"""Tensors that are alive outside of a step, and what they are to the model."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

#: What CUDA's caching allocator rounds sizes up to (kMinBlockSize in c10/cuda/CUDACachingAllocator.h).
_CUDA_BLOCK = 512


class Alive(NamedTuple):
    """One storage, by its address."""

    pointer: int
    bytes: int
    kind: str
    name: str
    type: str


def alive_tensors(
    device: torch.device, named: Iterable[tuple[str, str, torch.Tensor]], *, others: bool = True
) -> list[Alive]:
    """Storages on ``device``: those of ``named`` (kind, name, tensor) and, as ``unnamed``, of all other tensors that
    Python objects hold. A storage is listed once, under its first name."""
    found: dict[int, Alive] = {}
    rest = (("unnamed", "", tensor) for tensor in _all_tensors()) if others else ()
    for kind, name, tensor in (*named, *rest):
        place = storage_of(tensor)
        if place is not None and _same(tensor.device, device) and place[0] not in found:
            found[place[0]] = Alive(place[0], counted_bytes(place[1], device), kind, name, tensor_text(tensor))
    return list(found.values())


def counted_bytes(size: int, device: torch.device) -> int:
    """What the device's allocator counts for a storage of ``size`` bytes."""
    return -(-size // _CUDA_BLOCK) * _CUDA_BLOCK if device.type == "cuda" else size


def storage_of(tensor: object) -> tuple[int, int] | None:
    """Address and bytes of a tensor's storage; ``None`` for what has none: fake, sparse, on meta, not a tensor."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return None
    try:
        storage = tensor.untyped_storage()
        return (storage.data_ptr(), storage.nbytes()) if storage.data_ptr() else None
    except (RuntimeError, NotImplementedError):
        return None


def tensor_text(tensor: torch.Tensor) -> str:
    """As a trace prints its type."""
    from thunderfx.trace import TensorType

    dtype = str(tensor.dtype).removeprefix("torch.")
    return str(TensorType(dtype, tuple(int(size) for size in tensor.shape), str(tensor.device)))


def of_module(module: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Parameters, their gradients, and buffers."""
    for name, parameter in module.named_parameters():
        yield "parameters", name, parameter
        if parameter.grad is not None:
            yield "gradients", f"gradient of {name}", parameter.grad
    for name, buffer in module.named_buffers():
        yield "buffers", name, buffer


def of_optimizers() -> Iterator[tuple[str, str, torch.Tensor]]:
    """State of every optimizer in this process."""
    for optimizer in _objects(torch.optim.Optimizer):
        for state in list(optimizer.state.values()):
            for key, value in state.items() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    yield "optimizer state", f"{type(optimizer).__name__} {key}", value


def _all_tensors() -> Iterator[torch.Tensor]:
    return (item for item in _objects(torch.Tensor) if type(item) in (torch.Tensor, torch.nn.Parameter))


def _objects(kind: type) -> Iterator[Any]:
    """By class rather than ``isinstance``, which asks proxies for their ``__class__``."""
    return (item for item in gc.get_objects() if issubclass(type(item), kind))


def _same(one: torch.device, other: torch.device) -> bool:
    return one.type == other.type and (one.index or 0) == (other.index or 0)
