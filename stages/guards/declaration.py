"""What the guards stage declares of itself."""

from inductor_debug.stages.artifacts.records import GuardCounts
from inductor_debug.stages.declaration import CASE, Declaration, Question, Section
from inductor_debug.stages.guards.config import GuardsConfig

DECLARATION = Declaration(
    name="guards",
    stage="inductor_debug.stages.guards.stage:GuardsStage",
    options=GuardsConfig,
    order=80,
    reads=(*CASE, "backend"),
    follows=("capture",),
    summary={"guards": GuardCounts()},
    sections=(Section("guards", "inductor_debug.stages.guards.section:GuardsSection", place=35),),
    questions={
        "guards": Question(
            "where does the graph break, and what makes it compile again?",
            "inductor_debug.stages.guards.questions:guards",
        ),
    },
)
