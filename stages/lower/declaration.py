"""What the lower stage declares of itself."""

from inductor_debug.stages.declaration import CASE, Declaration, Question, Section
from inductor_debug.stages.lower.config import LowerConfig

DECLARATION = Declaration(
    name="lower",
    stage="inductor_debug.stages.lower.stage:LowerStage",
    options=LowerConfig,
    order=30,
    holds_times=True,
    reads=(*CASE, "backend"),
    follows=("capture",),
    by_default=True,
    skipped_by_violation=True,
    sections=(
        Section("lowering", "inductor_debug.stages.lower.section:LoweringSection", place=71),
        Section("not_compiled", "inductor_debug.stages.lower.not_compiled_section:NotCompiledSection", place=10),
        Section("emulation", "inductor_debug.stages.lower.emulation_section:EmulationSection", place=31),
    ),
    subject="What the compiler made",
    questions={
        "kernels": Question(
            "which kernels came from a line, and which lines is a kernel?",
            "inductor_debug.stages.lower.questions.kernels:kernels",
            ("graph", "lines", "kernels", "nodes"),
        ),
        "fusion": Question(
            "what was fused, what was not, and why?",
            "inductor_debug.stages.lower.questions.decisions:fusion",
            ("graph", "lines", "nodes"),
        ),
        "autotuning": Question(
            "which candidate was taken, and how close were the others?",
            "inductor_debug.stages.lower.questions.decisions:autotuning",
            ("graph",),
        ),
        "values": Question(
            "where does the first NaN or infinity come from?",
            "inductor_debug.stages.lower.questions.values:values",
            ("graph", "kernels"),
        ),
    },
)
