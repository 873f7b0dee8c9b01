"""A normalization's running statistics: eager adds them up in a wider format than a backend may."""

import math

import torch

from inductor_debug.stages.numerics import formats
from inductor_debug.stages.numerics.comparison import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS

STATISTICS = ("running_mean", "running_var")
"""What torch's normalizations, and those written like them, call their buffers."""


def accept_statistics(rows: list[TensorComparison], lost: set[tuple[str, str]]) -> None:
    """Judge a normalization's running statistics that exceed the floor by tolerance instead.

    They are sums of thousands of terms that cancel. Eager on the CPU adds them up in float64, so that its floor is the
    float32 result's last bit, which no backend that adds in float32 can meet (clean Inductor was measured at 43 floors
    in ResNet-18's ``running_mean``). ``assert_close``'s tolerance of the dtype decides, and not more than the square
    root of the unit roundoff, half the digits, of the buffer's own size. Any other buffer has the floor of all tensors.

    Args:
        lost: (kind, path) of the rows of what one side alone wrote into; such a write is never within a tolerance.
    """
    for row in rows:
        statistic = row.kind == "buffer" and row.place.rpartition(".")[2] in STATISTICS
        suspect = statistic and row.verdict == "defect" and row.bound in FLOORS
        if not suspect or (row.kind, row.path) in lost or row.reference_rms is None or row.max_abs is None:
            continue
        dtype = getattr(torch, row.dtype)
        half = math.sqrt(formats.unit_roundoff(dtype)) * row.reference_rms
        limit = min((row.atol or 0.0) + (row.rtol or 0.0) * row.reference_rms, half)
        if row.max_abs <= limit:
            row.verdict, row.bound = "within_tolerance", "tolerance"
            row.resolve_tolerance(limit)
            row.message += (
                f"; no element is more than {limit:.3g} off (the tolerance of {row.dtype}, and half the digits): a "
                "statistic that eager accumulates in a wider format"
            )
