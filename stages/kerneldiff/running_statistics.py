"""A normalization's running statistics: eager adds them up in a wider format than a backend may."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from inductor_debug.stages.kerneldiff.evidence import Evidence
from inductor_debug.stages.kerneldiff.reviews import Found
from inductor_debug.stages.numerics import formats
from inductor_debug.stages.numerics.comparison import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS, Judgement, Reason

STATISTICS = ("running_mean", "running_var")
"""What torch's normalizations, and those written like them, call their buffers."""


class RunningStatistics:
    """Judges a normalization's running statistics that exceed the floor by tolerance instead.

    They are sums of thousands of terms that cancel. Eager on the CPU adds them up in float64, so that its floor is the
    float32 result's last bit. No backend that adds in float32 can meet that: clean Inductor was measured at 43 floors
    in ResNet-18's ``running_mean``. ``assert_close``'s tolerance of the dtype decides, and not more than the square
    root of the unit roundoff, half the digits, of the buffer's own size. Any other buffer has the floor of all tensors.
    What one side alone wrote into is never within a tolerance.
    """

    name = "running statistics"

    def review(self, evidence: Evidence, rows: Sequence[TensorComparison]) -> Found:
        return Found(accepted(rows, evidence.lost))


def accepted(rows: Sequence[TensorComparison], lost: set[tuple[str, str]]) -> dict[int, Judgement]:
    """Judgements of the statistics that are within the tolerance.

    Args:
        lost: (kind, path) of the rows of what one side alone wrote into.
    """
    found = {}
    for index, row in enumerate(rows):
        statistic = row.kind == "buffer" and row.place.rpartition(".")[2] in STATISTICS
        beyond = statistic and row.verdict == "defect" and row.bound in FLOORS
        if not beyond or (row.kind, row.path) in lost or row.reference_rms is None or row.max_abs is None:
            continue
        dtype = getattr(torch, row.dtype)
        half = math.sqrt(formats.unit_roundoff(dtype)) * row.reference_rms
        limit = min((row.atol or 0.0) + (row.rtol or 0.0) * row.reference_rms, half)
        if row.max_abs <= limit:
            message = (
                f"{row.message}; no element is more than {limit:.3g} off (the tolerance of {row.dtype}, and half the "
                "digits): a statistic that eager accumulates in a wider format"
            )
            found[index] = replace(
                row.judgement,
                verdict="within_tolerance",
                bound="tolerance",
                message=message,
                resolution=row.resolution_of_tolerance(limit),
                reason=Reason.RUNNING_STATISTIC,
            )
    return found
