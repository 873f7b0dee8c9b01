"""What the profile stage declares of itself. Free of torch."""

from inductor_debug.stages.declaration import Declaration, Question
from inductor_debug.stages.profile.config import ProfileConfig

DECLARATION = Declaration(
    name="profile",
    stage="inductor_debug.stages.profile.stage:ProfileStage",
    options=ProfileConfig,
    order=70,
    timed=True,
    skipped_by_violation=True,
    questions={
        "profile": Question("where does the time go?", "inductor_debug.stages.profile.questions:profile"),
    },
)
