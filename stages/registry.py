"""Which stages there are. Free of torch: a stage's module is imported when it is built."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from inductor_debug.models.errors import invalid_choice
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.capture.config import CaptureConfig
from inductor_debug.stages.constrain.config import ConstrainConfig
from inductor_debug.stages.contract import Stage
from inductor_debug.stages.guards.config import GuardsConfig
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.profile.config import ProfileConfig
from inductor_debug.stages.report.config import ReportConfig

CONFIGS: dict[str, type] = {
    "capture": CaptureConfig,
    "constrain": ConstrainConfig,
    "lower": LowerConfig,
    "kerneldiff": KernelDiffConfig,
    "bisect": BisectConfig,
    "benchmark": BenchmarkConfig,
    "profile": ProfileConfig,
    "guards": GuardsConfig,
    "report": ReportConfig,
}
"""Stage name → its options, in the order in which they are meant to run."""

OFF_BY_DEFAULT = ("bisect", "profile", "guards")
"""Stages that only run where they are named; the others are the default list, in the order of :data:`CONFIGS`."""

TIMED = ("benchmark", "profile")
"""Stages whose results are times: they run without what a run sets for bit reproduction alone."""

CLASSES = {
    "capture": "inductor_debug.stages.capture.stage:CaptureStage",
    "constrain": "inductor_debug.stages.constrain.stage:ConstrainStage",
    "lower": "inductor_debug.stages.lower.stage:LowerStage",
    "kerneldiff": "inductor_debug.stages.kerneldiff.stage:KernelDiffStage",
    "bisect": "inductor_debug.stages.bisect.stage:BisectStage",
    "benchmark": "inductor_debug.stages.benchmark.stage:BenchmarkStage",
    "profile": "inductor_debug.stages.profile.stage:ProfileStage",
    "guards": "inductor_debug.stages.guards.stage:GuardsStage",
    "report": "inductor_debug.stages.report.stage:ReportStage",
}


def build_stage(name: str, config: Any, more: Mapping[str, str] = MappingProxyType({})) -> Stage:
    """The stage called ``name`` with its options; ConfigurationError where there is none of that name.

    Args:
        more: stages beyond these, or in the place of them, name → ``"module:Class"``.
    """
    classes = {**CLASSES, **more}
    if name not in classes:
        raise invalid_choice("stages", name, classes)
    module, _, attribute = classes[name].partition(":")
    stage: Stage = getattr(importlib.import_module(module), attribute)(config)
    return stage
