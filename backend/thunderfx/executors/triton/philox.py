"""Dropout whose mask is drawn where it is needed, in the forward and again in the backward, instead of being stored.

``aten.native_dropout`` becomes a seed, which torch's generator of the device draws once for each call, and uniform
numbers that are a function of the seed and the position: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3", 2011), as ``tl.rand`` of Triton computes it. Results are reproducible under ``torch.manual_seed`` and
are kept at the same rate as eager's, but are not eager's bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_ROUNDS = 10
_KEYS = (0x9E3779B9, 0xBB67AE85)
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_LOW = 0xFFFFFFFF


@torch.library.custom_op("thunderfx::seed", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def seed(device: torch.device) -> torch.Tensor:
    """A seed, ``int64[]``, drawn by the generator of ``device``."""
    return torch.randint(2**62, (), dtype=torch.int64, device=device)


@seed.register_fake
def _(device: torch.device) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64, device=device)


@torch.library.custom_op("thunderfx::uniform", mutates_args=())
def uniform(seed: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Numbers of [0, 1), ``float32`` of ``size``: the same as ``tl.rand(seed, position)`` for positions that fit 32
    bits."""
    count = 1
    for length in size:
        count *= length
    counter = torch.arange(count, dtype=torch.int64, device=seed.device)
    c0, c1 = counter & _LOW, counter >> 32
    c2 = c3 = torch.zeros_like(counter)
    k0, k1 = seed & _LOW, (seed >> 32) & _LOW
    for _ in range(_ROUNDS):
        high0, low0 = _product(c0, _FACTORS[0])
        high1, low1 = _product(c2, _FACTORS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEYS[0]) & _LOW, (k1 + _KEYS[1]) & _LOW
    signed = torch.where(c0 >= 2**31, c0 - 2**32, c0)
    positive = torch.where(signed < 0, -signed - 1, signed)
    return (positive.to(torch.float32) * 4.6566127342e-10).reshape(list(size))


def _product(values: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Upper and lower 32 bits of a product of 32-bit numbers, which ``int64`` has no room for."""
    upper, lower = values >> 16, values & 0xFFFF
    a, b = upper * factor, lower * factor  # below 2^48
    total = ((a & 0xFFFF) << 16) + b
    return (a >> 16) + (total >> 32), total & _LOW


@uniform.register_fake
def _(seed: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return torch.empty(size, dtype=torch.float32, device=seed.device)


def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """What ``aten.native_dropout`` is decomposed into before differentiation."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    if p == 1:
        return x * 0, torch.zeros_like(x, dtype=torch.bool)
    drawn = torch.ops.thunderfx.uniform(torch.ops.thunderfx.seed(x.device), x.shape)
    kept = drawn >= p
    return x * kept * (1 / (1 - p)), kept
