"""Errors that are always in one direction: within the floor each, and not noise.

In bfloat16 truncation in place of rounding is twice the rounding floor, and a factor of 1.001 is 1.2 times it. Both
pass. The projection of the error on the value, ⟨δ, y⟩ / ⟨y, y⟩, tells them: of rounding it is near 0. Rounding to
nearest leaves up to 0.06 u of it, where values crowd on one side of the grid (BERT in bfloat16); truncation leaves 0.3
to 0.7 u, a factor of 1.001 0.2 u. Sums of values on the grid lie on ties, and a factor just below 1 makes all of them
round one way (ResNet-18's residuals in bfloat16, 0.23 u). So has float64 itself, rounded to nearest.
"""

import math

SHARE = 0.12
"""Of a unit roundoff: what rounding to nearest may leave."""

CONSTANTS = 4.0
"""Unit roundoffs of float32, for each operation: kernels compute in it, and their constants (0.9, 1/sqrt(2)) too."""

SPREAD = 4.0
"""Standard deviations of a slope that noise may have."""

NEAREST = 2.0
"""Times the slope of right computations that round to nearest."""


def slope_limit(
    roundoff: float, elements: int, *, relative: float, noise: float, nearest: float, operations: int
) -> float:
    """The size up to which a slope may be that of a right computation.

    Args:
        roundoff: unit roundoff of the value's dtype.
        elements: of the value.
        relative: RMS error over RMS.
        noise: the largest size of the slope in right computations that round otherwise.
        nearest: the larger size of the slope of float64 rounded to nearest, and of torch's own kernels.
        operations: that made the value.
    """
    spread = relative / math.sqrt(elements)
    own = SHARE * roundoff + CONSTANTS * operations * 2.0**-24
    return own + SPREAD * (spread + noise) + NEAREST * nearest
