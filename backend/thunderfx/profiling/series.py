"""A stream of samples in bounded memory."""

from __future__ import annotations

import random


class Series:
    """Count, mean, maximum and last value exactly; the distribution as a uniform sample of at most `capacity`.

    Reservoir sampling, algorithm R (J. S. Vitter, "Random Sampling with a Reservoir", ACM TOMS 11, 1985), with a
    fixed seed, so that equal streams keep equal samples.
    """

    def __init__(self, capacity: int = 512) -> None:
        self.count = 0
        self.mean = 0.0
        self.maximum = float("-inf")
        self.last = float("nan")
        self._capacity = capacity
        self._reservoir: list[float] = []
        self._random = random.Random(0)

    def add(self, value: float) -> None:
        self.count += 1
        self.mean += (value - self.mean) / self.count
        self.maximum = max(self.maximum, value)
        self.last = value
        if len(self._reservoir) < self._capacity:
            self._reservoir.append(value)
            return
        place = self._random.randrange(self.count)
        if place < self._capacity:
            self._reservoir[place] = value

    def sample(self) -> list[float]:
        return list(self._reservoir)
