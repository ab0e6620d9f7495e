"""A multilayer perceptron: linear layers with GELU between them, and a mean-square loss."""

from itertools import pairwise

import torch
from torch import Tensor, nn

LAYERS = 6
WIDTH = 512
FEATURES = 256
OUTPUTS = 64
BATCH = 256


class MLP(nn.Module):
    """``LAYERS`` hidden layers of ``WIDTH`` units, then a linear head."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [FEATURES] + [WIDTH] * LAYERS
        self.hidden = nn.ModuleList(nn.Linear(n_in, n_out) for n_in, n_out in pairwise(sizes))
        self.act = nn.GELU()
        self.head = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = self.act(layer(x))
        return self.head(x)


def model() -> nn.Module:
    return MLP()


def inputs() -> tuple[Tensor, ...]:
    return (torch.randn(BATCH, FEATURES),)


def loss(output: Tensor) -> Tensor:
    return output.square().mean()
