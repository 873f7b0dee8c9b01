"""What the capture stage declares of itself."""

from inductor_debug.stages.artifacts.records import GraphCounts
from inductor_debug.stages.capture.config import CaptureConfig
from inductor_debug.stages.declaration import CASE, Declaration, Section

DECLARATION = Declaration(
    name="capture",
    stage="inductor_debug.stages.capture.stage:CaptureStage",
    options=CaptureConfig,
    order=10,
    reads=(*CASE, "backend.dynamo"),
    by_default=True,
    summary={"graphs": GraphCounts()},
    sections=(Section("graphs", "inductor_debug.stages.capture.section:GraphsSection", place=72),),
    subject="What was captured",
)
