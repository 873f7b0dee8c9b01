"""Whether a PyTorch model fits an accelerator, what TorchInductor made of it, and whether the numbers are right.

The names of ``__all__`` are the library, each imported when it is first asked for; what is below the packages ``conf``,
``models``, ``pipeline`` and ``stages`` may change from one version to the next. Importing this package does not import
torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductor_debug.models.errors import ConfigurationError
    from inductor_debug.stages.accelerators.config import AccelConfig, Rule
    from inductor_debug.stages.accelerators.loading import load_profile
    from inductor_debug.stages.accelerators.profile import Profile, validate_profile
    from inductor_debug.stages.backends.adapter import AcceleratorAdapter
    from inductor_debug.stages.backends.emulation import Emulation
    from inductor_debug.stages.backends.lowering import LoweredKernel, Lowering
    from inductor_debug.stages.bisect.api import bisect
    from inductor_debug.stages.contract import Stage, StageContext, StageResult
    from inductor_debug.stages.declaration import Declaration, Question, Section
    from inductor_debug.stages.emulation.findings import Findings
    from inductor_debug.stages.graphs.records import GraphRecord
    from inductor_debug.stages.guards.inspection import inspect_guards
    from inductor_debug.stages.kerneldiff.diff import diff
    from inductor_debug.stages.localize.api import localize
    from inductor_debug.stages.minify.api import minify
    from inductor_debug.stages.mock_backends import aot_mock_backend, mock_backend
    from inductor_debug.stages.numerics.comparison import assert_matches, compare, compare_tensors
    from inductor_debug.stages.numerics.metrics import Metric
    from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection
    from inductor_debug.stages.rules.engine import check
    from inductor_debug.stages.rules.violation import CustomFinding, Violation, row
    from inductor_debug.stages.rules.violations import Violations
    from inductor_debug.stages.stored_run import Analysis, StoredRun, Table, Wanted

_PLACES = {
    "AccelConfig": "stages.accelerators.config",
    "AcceleratorAdapter": "stages.backends.adapter",
    "Analysis": "stages.stored_run",
    "ConfigurationError": "models.errors",
    "CustomFinding": "stages.rules.violation",
    "Declaration": "stages.declaration",
    "Emulation": "stages.backends.emulation",
    "Findings": "stages.emulation.findings",
    "GraphRecord": "stages.graphs.records",
    "LoweredKernel": "stages.backends.lowering",
    "Lowering": "stages.backends.lowering",
    "Metric": "stages.numerics.metrics",
    "Profile": "stages.accelerators.profile",
    "Question": "stages.declaration",
    "Answer": "stages.report.sections",
    "ReportSection": "stages.report.sections",
    "ReportedRun": "stages.report.sections",
    "Rule": "stages.accelerators.config",
    "Section": "stages.declaration",
    "Stage": "stages.contract",
    "StageContext": "stages.contract",
    "StageResult": "stages.contract",
    "StoredRun": "stages.stored_run",
    "Table": "stages.stored_run",
    "Violation": "stages.rules.violation",
    "Violations": "stages.rules.violations",
    "Wanted": "stages.stored_run",
    "aot_mock_backend": "stages.mock_backends",
    "assert_matches": "stages.numerics.comparison",
    "bisect": "stages.bisect.api",
    "check": "stages.rules.engine",
    "compare": "stages.numerics.comparison",
    "compare_tensors": "stages.numerics.comparison",
    "diff": "stages.kerneldiff.diff",
    "inspect_guards": "stages.guards.inspection",
    "load_profile": "stages.accelerators.loading",
    "localize": "stages.localize.api",
    "minify": "stages.minify.api",
    "mock_backend": "stages.mock_backends",
    "row": "stages.rules.checked_tensors",
    "validate_profile": "stages.accelerators.profile",
}
"""Name → the module below this package that holds it."""

__all__ = [
    "AccelConfig",
    "AcceleratorAdapter",
    "Analysis",
    "Answer",
    "ConfigurationError",
    "CustomFinding",
    "Declaration",
    "Emulation",
    "Findings",
    "GraphRecord",
    "LoweredKernel",
    "Lowering",
    "Metric",
    "Profile",
    "Question",
    "ReportSection",
    "ReportedRun",
    "Rule",
    "Section",
    "Stage",
    "StageContext",
    "StageResult",
    "StoredRun",
    "Table",
    "Violation",
    "Violations",
    "Wanted",
    "aot_mock_backend",
    "assert_matches",
    "bisect",
    "check",
    "compare",
    "compare_tensors",
    "diff",
    "inspect_guards",
    "load_profile",
    "localize",
    "minify",
    "mock_backend",
    "row",
    "validate_profile",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
