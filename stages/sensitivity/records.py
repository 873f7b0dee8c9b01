"""What planted faults showed: a row of ``kerneldiff/sensitivity.csv`` for each place and compared tensor."""

from dataclasses import dataclass, field

import pandas as pd

from inductor_debug.stages.artifacts.files import SENSITIVITY
from inductor_debug.stages.artifacts.tables import SensitivityRow
from inductor_debug.stages.sensitivity.search import Key, Threshold
from inductor_debug.stages.sensitivity.sites import Site

ANY: Key = ("any", "any")
"""Kind and path of a row about the run's verdict, which any tensor fails."""


@dataclass
class Measured:
    """One place.

    Attributes:
        site: the place.
        verdict: where any tensor is a defect first.
        tensors: where each is.
        effect: False where float64 shows none either.
    """

    site: Site
    verdict: Threshold
    tensors: dict[Key, Threshold] = field(default_factory=dict)
    effect: bool = True

    def rows(self) -> list[SensitivityRow]:
        return [self._row(key, found) for key, found in {ANY: self.verdict, **self.tensors}.items()]

    def _row(self, key: Key, found: Threshold) -> SensitivityRow:
        site = self.site
        name = "defect" if found.error is not None else "no_effect" if found.same or not self.effect else "passes"
        return SensitivityRow(
            site.fault, site.place, site.operation, site.source, *key, name, found.error, found.passed or None,
            found.ratio, found.confirmed,
        )  # fmt: skip


@dataclass
class Sensitivity:
    """All places.

    Attributes:
        measured: in the order of the faults, then of the places.
        note: why nothing was measured, or what is less than was asked for; else empty.
        dtype: that the case computes in.
        roundoff: its unit roundoff.
    """

    measured: list[Measured] = field(default_factory=list)
    note: str = ""
    dtype: str = ""
    roundoff: float = 0.0

    @property
    def rows(self) -> list[SensitivityRow]:
        return [row for item in self.measured for row in item.rows()]

    @property
    def table(self) -> pd.DataFrame:
        """``kerneldiff/sensitivity.csv``."""
        return SENSITIVITY.frame(self.rows)
