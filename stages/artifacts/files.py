"""Every file of a run: its path, and what it holds. Who writes or reads one takes its path from here.

A stage writes below the folder of its name; ``repros/`` is every stage's.
"""

from typing import Any

from inductor_debug.stages.artifacts.baseline import About
from inductor_debug.stages.artifacts.bisection import BisectionRecord
from inductor_debug.stages.artifacts.comparison import Diagnosis, WorstElements
from inductor_debug.stages.artifacts.guards import Guards
from inductor_debug.stages.artifacts.kinds import File, Json, RecordTable, Table
from inductor_debug.stages.artifacts.localization import NodeRow
from inductor_debug.stages.artifacts.lowered_tables import CandidateRow, Finding, FusionRow, KernelRow, ValueRow
from inductor_debug.stages.artifacts.lowering import EmulationFacts, Lowering, MappedNodes, NotCompiled, Provenance
from inductor_debug.stages.artifacts.measurements import Machine, ProfileFacts
from inductor_debug.stages.artifacts.minimization import MinifiedRecord
from inductor_debug.stages.artifacts.records import (
    BreakRecord,
    CapturedGuard,
    Declared,
    Manifest,
    RecompileRecord,
    Rejection,
    ReportData,
    StageRecord,
    Summary,
)
from inductor_debug.stages.artifacts.sources import Excerpt
from inductor_debug.stages.artifacts.tables import (
    DriftRow,
    JitterRow,
    OutputRow,
    ProbeRow,
    RuleRow,
    SensitivityRow,
    ViolationRow,
)
from inductor_debug.stages.artifacts.time_tables import (
    KernelTimeRow,
    LineTimeRow,
    ModuleTimeRow,
    OperationTimeRow,
    SampleRow,
    ThroughputRow,
)
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.graphs.statistics import StatisticsRow

SUMMARY = Json("summary.json", Summary)
MANIFEST = Json("manifest.json", Manifest)
CONFIGURATION_ERROR = Json("configuration_error.json", Rejection)
STAGE_RECORD = Json(".stages/{stage}.json", StageRecord)
REPRO = File("repros/{name}")
"""A script that shows a failure by itself; see ``inductor-debug repro``."""

GRAPH = Json("capture/graphs/{graph}.json", GraphRecord)
GRAPH_CODE = File("capture/graphs/{graph}.py")
"""The same graph as readable FX code."""
GRAPH_PICTURE = File("capture/graphs/{graph}.svg")
"""Its picture, folded by module."""
SOURCES = Json("capture/sources.json", list[Excerpt])
"""The functions of the model that operations came from."""
STATISTICS = Table("capture/statistics.csv", StatisticsRow)
BREAKS = Json("capture/breaks.json", list[BreakRecord])
"""The graph breaks of the one step that was captured."""
RECOMPILES = Json("capture/recompiles.json", list[RecompileRecord])
"""The recompilations of that step."""
CAPTURED_GUARDS = Json("capture/guards.json", list[CapturedGuard])
"""The guards of Dynamo's graphs."""

VIOLATIONS = RecordTable("constrain/violations.csv", ViolationRow)
BY_RULE = Table("constrain/summary.csv", RuleRow)
DECLARED = Json("constrain/declared.json", Declared)
"""The rules that a backend declares of itself, where no profile took their place: what ``accel.*`` edits."""

LOWERING = Json("lower/summary.json", Lowering)
LOWERED = File("lower/{graph}/{name}")
"""A file of a lowered graph. Those that are read have names of their own below."""
OUTPUT_CODE = File("lower/{graph}/output_code.{language}")
"""The code that TorchInductor generated of the graph."""
POST_GRAD_PICTURE = File("lower/{graph}/post_grad.svg")
"""The picture of the post-grad graph; a tooltip names the kernel of each operation."""
PROVENANCE = Json("lower/{graph}/provenance.json", Provenance)
POST_GRAD_NODES = Json("lower/{graph}/nodes.json", MappedNodes)
"""Each post-grad node with what it came from."""
KERNELS = Table("lower/{graph}/kernels.csv", KernelRow)
FUSIONS = Table("lower/{graph}/fusions.csv", FusionRow)
AUTOTUNING = Table("lower/{graph}/autotuning.csv", CandidateRow)
VALUES = RecordTable("lower/values.csv", ValueRow)
VALUE = File("lower/values/{graph}/{name}")
"""A value around a launch, as a safetensors file; with ``backend.options.print_values=1``."""
NOT_COMPILED = Json("lower/not_compiled.json", NotCompiled)
EMULATION = Table("lower/emulation.csv", Finding)
EMULATION_FACTS = Json("lower/emulation.json", EmulationFacts)

OUTPUTS = RecordTable("kerneldiff/outputs.csv", OutputRow)
WORST = Json("kerneldiff/worst.json", list[WorstElements])
"""Of each tensor that has any, the elements that differ most."""
DIAGNOSIS = Json("kerneldiff/diagnosis.json", Diagnosis)
NODES = Table("kerneldiff/nodes.csv", NodeRow)
REVIEWS = Table("kerneldiff/reviews.csv")
"""Each step that changed a verdict: the ``review`` that looked, ``kind`` and ``path`` of the tensor, and its
``verdict``, ``bound`` and ``ratio`` before and after; ``reason`` and ``message`` say why.
"""
COMPARISON_OPTIONS = Json("kerneldiff/options.json", dict[str, Any])
"""The options as they were: bisect judges by them."""
DRIFT = Table("kerneldiff/drift.csv", DriftRow)
JITTER = Table("kerneldiff/jitter.csv", JitterRow)
SENSITIVITY = RecordTable("kerneldiff/sensitivity.csv", SensitivityRow)
PLOT = File("kerneldiff/plots/{file}")
"""A summary over all tensors, and a plot of each that fails."""
BASELINE = Json("kerneldiff/baseline/baseline.json", About)
"""The reference that ``stages.kerneldiff.baseline=RUN`` compares with elsewhere."""
BASELINE_SIDE = File("kerneldiff/baseline/{name}.safetensors")
"""The reference's leaves, those of float64, the inputs and weights, as tensors."""
FORMER_BASELINE = Json("kerneldiff/golden/golden.json", About)
"""As earlier versions called it; it is read."""

SAMPLES = Table("benchmark/samples.csv", SampleRow)
BENCHMARK = Table("benchmark/summary.csv")
"""One row a side. Its columns are the fields of :class:`stages.artifacts.measurements.SideFigures`; an interval has
two, ``…_low`` and ``…_high`` before its unit.
"""
THROUGHPUT = RecordTable("benchmark/throughput.csv", ThroughputRow)
MACHINE = Json("benchmark/environment.json", Machine)

BISECTION = Json("bisect/bisect.json", BisectionRecord)
PROBES = Table("bisect/probes.csv", ProbeRow)

MINIFIED = Json("minify/minified.json", MinifiedRecord)

PROFILE = Json("profile/summary.json", ProfileFacts)
PROFILE_TABLES = {
    "kernels": Table("profile/kernels.csv", KernelTimeRow),
    "operations": Table("profile/operations.csv", OperationTimeRow),
    "modules": Table("profile/modules.csv", ModuleTimeRow),
    "lines": Table("profile/lines.csv", LineTimeRow),
}
TRACE = File("profile/trace.json.gz")
"""Some steps as a trace, which Perfetto opens."""

GUARDS = Json("guards/guards.json", Guards)
GUARD_VARIATIONS = Table("guards/variations.csv")
"""One row a variation of the inputs; see :class:`stages.artifacts.guards.VariationRow`."""
GUARD_RECOMPILES = Table("guards/recompiles.csv")
"""One row a recompilation; see :class:`stages.artifacts.guards.RecompileRow`."""
GUARD_BREAKS = Table("guards/breaks.csv")
"""One row a graph break; see :class:`stages.artifacts.guards.BreakRow`."""

REPORT = Json("report/report.json", ReportData)
REPORT_PAGE = File("report/report.html")
"""One self-contained page that opens offline."""

_NAMED = [file for file in [*globals().values(), *PROFILE_TABLES.values()] if isinstance(file, File)]


def file_of(name: str) -> File | None:
    """The file that a path is of, that which tells most of it; None for one that no stage of ours writes."""
    found = [file for file in _NAMED if file.is_path(name)]
    return max(found, key=lambda file: (-file.path.count("{"), len(file.path)), default=None)


def shape_of(name: str) -> Any:
    """The shape of a JSON file, by its path."""
    file = file_of(name)
    return file.shape if isinstance(file, Json) else Any


def table_of(name: str) -> Table:
    """The table at a path; one that asks nothing of its columns where it is not ours."""
    file = file_of(name)
    return file if isinstance(file, Table) else Table(name)
