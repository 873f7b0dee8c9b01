"""What the benchmark stage declares of itself."""

from inductor_debug.stages.artifacts.records import Benchmark
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.declaration import CASE, Declaration, Section

DECLARATION = Declaration(
    name="benchmark",
    stage="inductor_debug.stages.benchmark.stage:BenchmarkStage",
    options=BenchmarkConfig,
    order=60,
    reads=(*CASE, "backend", "reference"),
    follows=("capture", "lower"),
    by_default=True,
    timed=True,
    skipped_by_violation=True,
    summary={"benchmark": Benchmark()},
    sections=(Section("benchmark", "inductor_debug.stages.benchmark.section:BenchmarkSection"),),
    subject="How fast it is",
)
