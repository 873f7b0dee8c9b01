"""The stage ``acme_energy``, declared. Imports no torch: the command line reads it."""

from dataclasses import dataclass

from inductor_debug import ConfigurationError, Declaration, Question, Section


@dataclass
class EnergyOptions:
    """Attributes:
    picojoules: of one floating-point operation.
    """

    picojoules: float = 0.5

    def check(self) -> None:
        if not self.picojoules > 0:
            raise ConfigurationError(
                f"stages.acme_energy.picojoules: got {self.picojoules}; valid: above 0.\n"
                "Try: stages.acme_energy.picojoules=0.5"
            )


DECLARATION = Declaration(
    name="acme_energy",
    stage="acme_npu.energy.stage:EnergyStage",
    options=EnergyOptions,
    order=75,
    needs=("capture",),
    uses_torch=False,
    skipped_by_violation=True,
    summary={"acme_energy": {"microjoules": None}},
    if_broken={"acme_energy": {"microjoules": "nan"}},
    sections=(Section("acme_energy", "acme_npu.energy.section:EnergySection"),),
    subject="What a step costs in energy",
    questions={"acme_energy": Question("which operations cost the energy?", "acme_npu.energy.section:answer")},
)
