"""What the profile stage declares of itself."""

from inductor_debug.stages.declaration import CASE, Declaration, Question, Section
from inductor_debug.stages.profile.config import ProfileConfig

DECLARATION = Declaration(
    name="profile",
    stage="inductor_debug.stages.profile.stage:ProfileStage",
    options=ProfileConfig,
    order=70,
    reads=(*CASE, "backend", "accel"),
    follows=("capture", "lower"),
    timed=True,
    skipped_by_violation=True,
    sections=(Section("profile", "inductor_debug.stages.profile.section:ProfileSection"),),
    questions={
        "profile": Question("where does the time go?", "inductor_debug.stages.profile.questions:profile"),
    },
)
