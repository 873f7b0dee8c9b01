"""What the constrain stage declares of itself."""

from inductor_debug.stages.artifacts.records import Violations
from inductor_debug.stages.constrain.config import ConstrainConfig
from inductor_debug.stages.declaration import Declaration, Question, Section

DECLARATION = Declaration(
    name="constrain",
    stage="inductor_debug.stages.constrain.stage:ConstrainStage",
    options=ConstrainConfig,
    order=20,
    reads=("accel", "backend"),
    follows=("capture",),
    needs=("capture",),
    by_default=True,
    uses_torch=False,
    waives=True,
    summary={"violations": Violations()},
    sections=(Section("violations", "inductor_debug.stages.constrain.section:ViolationsSection", place=55),),
    subject="Whether the model fits",
    questions={
        "constraints": Question(
            "what breaks the accelerator's rules, at which line?",
            "inductor_debug.stages.constrain.questions:constraints",
        ),
    },
)
