"""What the lower stage declares of itself. Free of torch."""

from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.lower.config import LowerConfig

DECLARATION = Declaration(
    name="lower",
    stage="inductor_debug.stages.lower.stage:LowerStage",
    options=LowerConfig,
    order=30,
    by_default=True,
    skipped_by_violation=True,
)
