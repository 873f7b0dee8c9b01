"""What the minify stage declares of itself."""

from inductor_debug.stages.declaration import CASE, Declaration, Section
from inductor_debug.stages.minify.config import MinifyConfig

DECLARATION = Declaration(
    name="minify",
    stage="inductor_debug.stages.minify.stage:MinifyStage",
    options=MinifyConfig,
    order=90,
    reads=(*CASE, "backend"),
    follows=("capture", "lower", "kerneldiff", "benchmark", "guards"),
    by_default=True,
    timed=None,
    skipped_by_violation=True,
    sections=(Section("minified", "inductor_debug.stages.minify.section:MinifiedSection", place=45),),
)
