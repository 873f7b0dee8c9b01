"""What the report stage declares of itself."""

from inductor_debug.stages.declaration import Declaration, Section
from inductor_debug.stages.report.config import ReportConfig

DECLARATION = Declaration(
    name="report",
    stage="inductor_debug.stages.report.stage:ReportStage",
    options=ReportConfig,
    order=100,
    by_default=True,
    uses_torch=False,
    timed=None,
    sections=(
        Section("source", "inductor_debug.stages.report.source:SourceSection", place=65),
        Section("explorer", "inductor_debug.stages.report.explorer.section:ExplorerSection", place=66),
    ),
)
