"""By which factor the whole tensor is larger: 1.1 says at a glance that everything was multiplied by 1.1."""

import math

from inductor_debug.stages.numerics.accumulator import Figures
from inductor_debug.stages.numerics.metrics import Metric


class Scale(Metric):
    """The factor a for which a · reference is nearest to the test, by least squares.

    ⟨reference, test⟩ / ⟨reference, reference⟩, which is the cosine similarity times the ratio of the norms, over the
    elements that are finite on both sides. None where the reference is all zeros.
    """

    name = "scale"

    def value(self, figures: Figures) -> float | None:
        if not figures.reference_rms or math.isnan(figures.cosine):
            return None
        return figures.cosine * figures.test_rms / figures.reference_rms
