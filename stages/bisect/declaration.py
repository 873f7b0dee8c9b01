"""What the bisect stage declares of itself. Free of torch."""

from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.declaration import Declaration

DECLARATION = Declaration(
    name="bisect",
    stage="inductor_debug.stages.bisect.stage:BisectStage",
    options=BisectConfig,
    order=50,
    skipped_by_violation=True,
)
