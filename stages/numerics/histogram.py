"""The bins of an error histogram: two octaves each, counted exactly, open at both ends."""

import torch

LOWEST, OCTAVES, BINS = -100, 2, 64
"""Bin ``i`` counts errors in [2**(LOWEST + OCTAVES·i), 2**(LOWEST + OCTAVES·(i + 1))); the first also what lies below,
the last but one also what lies above. The last bin is for what has no place: zeros, NaN and infinities."""


def bins_of(error: torch.Tensor) -> torch.Tensor:
    """The bin of each non-negative float64 error, as int64."""
    exponent = ((error.view(torch.int64) >> 52) & 0x7FF) - (1023 + LOWEST)
    inside = (error > 0) & (error < float("inf"))
    return torch.where(inside, (exponent // OCTAVES).clamp_(0, BINS - 2), BINS - 1)


def edges() -> list[float]:
    """Lower edges of all bins but the last, and the upper edge of the last but one."""
    return [2.0 ** (LOWEST + OCTAVES * index) for index in range(BINS)]
