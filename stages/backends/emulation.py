"""What an adapter that emulates says of it: what it emulated, and what it found."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from inductor_debug.stages.accelerators.config import NumericsConfig
from inductor_debug.stages.artifacts.files import EMULATION, EMULATION_FACTS
from inductor_debug.stages.contract import StageContext, StageResult
from inductor_debug.stages.emulation.findings import Findings
from inductor_debug.stages.formatting import in_lines, in_words


@dataclasses.dataclass(frozen=True)
class Emulation:
    """An adapter's emulation as far as it has run.

    Attributes:
        profile: name of the accelerator whose numerics they are.
        told: what is emulated, in a few words (``float32 stored as bfloat16``); empty: host fallbacks alone.
        findings: what the graphs did so far.
        numerics: the same numerics as a profile states them, as far as it can.
        warns: a defect among the findings is recorded and fails nothing.
        more: further facts for ``lower/emulation.json``.
    """

    profile: str
    told: str
    findings: Findings
    numerics: NumericsConfig = dataclasses.field(default_factory=NumericsConfig)
    warns: bool = False
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def status(self) -> Literal["passed", "failed"]:
        """Failed where a leak or an overflow of integers was found, unless it only warns."""
        return "failed" if self.findings.defects and not self.warns else "passed"

    @property
    def message(self) -> str:
        """One line for a person: what was emulated, how many findings of each kind, and the first of the worst."""
        words = f"The emulation of {self.told or 'host fallbacks'} found {self.findings.describe()}."
        return in_words(words, self.findings.describe_worst())

    def artifacts(self) -> dict[str, Any]:
        """``lower/emulation.csv``, one row a finding, and ``lower/emulation.json``: the numerics and counts."""
        facts = {
            "profile": self.profile,
            "numerics": dataclasses.asdict(self.numerics),
            "warns": self.warns,
            "findings": self.findings.counts(),
        }
        return {EMULATION.path: EMULATION.frame(self.findings), EMULATION_FACTS.path: facts | dict(self.more)}

    def added_to(self, result: StageResult, context: StageContext) -> StageResult:
        """The result of a stage that compares, with the findings where no lower stage has told them."""
        if EMULATION.stored(context.artifacts):
            return result
        return dataclasses.replace(
            result,
            status="failed" if "failed" in (result.status, self.status) else result.status,
            message=in_lines(result.message, self.message),
            artifacts=result.artifacts | self.artifacts(),
        )
