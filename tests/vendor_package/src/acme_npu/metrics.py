"""A metric of the chip's: how much of its number range a result takes."""

import torch

from inductor_debug import Metric

LARGEST = 65504.0


class RangeShare(Metric):
    """Largest magnitude of the test side over the chip's largest number."""

    name = "acme_range_share"
    passes = True

    def __init__(self) -> None:
        self.largest = 0.0

    def add(self, reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor | None) -> None:
        self.largest = max(self.largest, float(test.abs().max()))

    def value(self, figures: object) -> float:
        return self.largest / LARGEST
