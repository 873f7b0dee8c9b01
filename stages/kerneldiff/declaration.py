"""What the kerneldiff stage declares of itself."""

from inductor_debug.stages.artifacts.records import Numerics
from inductor_debug.stages.declaration import CASE, Declaration, Question, Section
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig

DECLARATION = Declaration(
    name="kerneldiff",
    stage="inductor_debug.stages.kerneldiff.stage:KernelDiffStage",
    options=KernelDiffConfig,
    order=40,
    reads=(*CASE, "backend", "reference"),
    follows=("capture", "lower"),
    by_default=True,
    skipped_by_violation=True,
    summary={"numerics": Numerics()},
    if_broken={"numerics": {"compared": 0, "verdict": "not_established"}},
    sections=(Section("numerics", "inductor_debug.stages.kerneldiff.section:NumericsSection"),),
    subject="Whether the numbers are right",
    questions={
        "numerics": Question(
            "which results are wrong, and by how much?", "inductor_debug.stages.kerneldiff.section:answer"
        ),
    },
)
