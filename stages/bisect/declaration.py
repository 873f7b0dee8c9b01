"""What the bisect stage declares of itself."""

from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.declaration import CASE, Declaration, Question, Section

DECLARATION = Declaration(
    name="bisect",
    stage="inductor_debug.stages.bisect.stage:BisectStage",
    options=BisectConfig,
    order=50,
    reads=(*CASE, "backend", "reference"),
    follows=("capture", "kerneldiff"),
    skipped_by_violation=True,
    sections=(Section("bisection", "inductor_debug.stages.bisect.section:BisectionSection"),),
    questions={
        "bisect": Question(
            "which pass, lowering or option makes the fault go away?", "inductor_debug.stages.bisect.questions:bisect"
        ),
    },
)
