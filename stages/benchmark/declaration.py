"""What the benchmark stage declares of itself."""

from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.declaration import Declaration, Section

_SIDE = dict.fromkeys(
    ("median_ms", "iqr_ms", "ci95_ms", "device_ms", "device_waited", "samples", "processes", "compile_s",
     "compile_kind", "peak_memory_bytes")
)  # fmt: skip

DECLARATION = Declaration(
    name="benchmark",
    stage="inductor_debug.stages.benchmark.stage:BenchmarkStage",
    options=BenchmarkConfig,
    order=60,
    by_default=True,
    timed=True,
    skipped_by_violation=True,
    summary={
        "benchmark": {
            "reference": dict(_SIDE),
            "test": dict(_SIDE),
            **dict.fromkeys(("speedup", "speedup_ci95", "established", "not_established")),
        }
    },
    sections=(Section("benchmark", "inductor_debug.stages.benchmark.section:BenchmarkSection"),),
    subject="How fast it is",
)
