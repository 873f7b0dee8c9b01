"""What the minify stage declares of itself."""

from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.minify.config import MinifyConfig

DECLARATION = Declaration(
    name="minify",
    stage="inductor_debug.stages.minify.stage:MinifyStage",
    options=MinifyConfig,
    order=45,
    skipped_by_violation=True,
)
