"""A training program: a classifier on synthetic data, compiled by its own ``torch.compile`` and trained with AdamW.

It runs by itself, and under the profiler: ``thunderfx run sample_models/train_loop.py -- --steps 20``.
"""

import argparse
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

LAYERS = 3
WIDTH = 256
FEATURES = 64
CLASSES = 8
SAMPLES = 4096
LEARNING_RATE = 1e-3
REPORTS = 10  #: about this many lines of output


class Classifier(nn.Module):
    """``LAYERS`` normalised GELU layers and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def synthetic_data() -> TensorDataset:
    """Random points, each labelled by the nearest in angle of ``CLASSES`` random directions."""
    points = torch.randn(SAMPLES, FEATURES)
    directions = torch.randn(FEATURES, CLASSES)
    return TensorDataset(points, (points @ directions).argmax(dim=1))


def train(steps: int, batch_size: int) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    # Whole batches only: a shorter last one would have the model compiled again for its shape.
    loader = DataLoader(synthetic_data(), batch_size=batch_size, shuffle=True, drop_last=True)
    model = Classifier().to(device)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    every = max(1, steps // REPORTS)

    batches = (batch for _ in range(steps) for batch in loader)  # epoch after epoch
    for step, (points, labels) in enumerate(islice(batches, steps), start=1):
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(points.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        if step == 1 or step % every == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small classifier on synthetic data.")
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=128, help=f"at most {SAMPLES} (default: %(default)s)")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps must be at least 1")
    if not 1 <= args.batch_size <= SAMPLES:
        parser.error(f"--batch-size must be between 1 and {SAMPLES}")
    torch.manual_seed(0)
    train(args.steps, args.batch_size)


if __name__ == "__main__":
    main()
