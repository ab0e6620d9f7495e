"""A small residual network: BatchNorm in train mode and in-place ReLU, so that the forward pass mutates.

Each BatchNorm updates its running statistics and each ReLU overwrites its argument: the compiler has to turn both into
pure operations and write the statistics back.
"""

import torch
from torch import Tensor, nn

BLOCKS = 2  #: residual blocks in each stage
CHANNELS = (16, 32, 64)  #: one stage each; every stage but the first halves the image
IMAGE = 32
CLASSES = 10
BATCH = 8


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        h += self.shortcut(x)
        return self.relu(h)


class ConvNet(nn.Module):
    """A stem, ``len(CHANNELS)`` stages of residual blocks, average pooling and a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        width = CHANNELS[0]
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        blocks: list[nn.Module] = []
        for stage, channels in enumerate(CHANNELS):
            for block in range(BLOCKS):
                blocks.append(ResidualBlock(width, channels, stride=2 if stage and not block else 1))
                width = channels
        self.blocks = nn.ModuleList(blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.pool(x).flatten(1))


def model() -> nn.Module:
    return ConvNet().train()


def inputs() -> tuple[Tensor, ...]:
    return (torch.randn(BATCH, 3, IMAGE, IMAGE),)


def loss(output: Tensor) -> Tensor:
    """Cross-entropy, as if every image were of class 0."""
    return output.logsumexp(dim=1).mean() - output[:, 0].mean()
