"""A model that TorchDynamo compiles as two subgraphs, each with a forward and a backward of its own.

TorchDynamo captures the longest stretch of tensor code that it can. Where it meets something that it cannot put into a
graph (a call into a C extension, a branch on a tensor's value) it ends the graph, lets Python run that part, and starts
another graph after it. ``torch._dynamo.graph_break()`` asks for such a break outright, so this model breaks at the same
place in every PyTorch version: between ``encoder`` and ``decoder``. The backward pass runs the second one's backward
first, then the first's.
"""

import torch
import torch._dynamo
from torch import Tensor, nn

LAYERS = 3  #: linear layers in each half
WIDTH = 512
FEATURES = 256
BATCH = 256


class Half(nn.Module):
    """``LAYERS`` linear layers with GELU between them, of ``WIDTH`` units inside."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(n_in, WIDTH), nn.GELU()]
        for _ in range(LAYERS - 2):
            layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
        self.layers = nn.Sequential(*layers, nn.Linear(WIDTH, n_out))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class BrokenInTwo(nn.Module):
    """An encoder and a decoder with a graph break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Half(FEATURES, WIDTH)
        self.decoder = Half(WIDTH, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.encoder(x))
        torch._dynamo.graph_break()
        return self.decoder(h)


def model() -> nn.Module:
    return BrokenInTwo()


def inputs() -> tuple[Tensor, ...]:
    return (torch.randn(BATCH, FEATURES),)


def loss(output: Tensor) -> Tensor:
    return output.square().mean()
