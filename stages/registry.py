"""Which stages there are. Free of torch: a stage's module is imported when it is built."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from models.errors import invalid_choice
from stages.benchmark.config import BenchmarkConfig
from stages.bisect.config import BisectConfig
from stages.capture.config import CaptureConfig
from stages.constrain.config import ConstrainConfig
from stages.contract import Stage
from stages.guards.config import GuardsConfig
from stages.kerneldiff.config import KernelDiffConfig
from stages.lower.config import LowerConfig
from stages.profile.config import ProfileConfig
from stages.report.config import ReportConfig

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
    "capture": "stages.capture.stage:CaptureStage",
    "constrain": "stages.constrain.stage:ConstrainStage",
    "lower": "stages.lower.stage:LowerStage",
    "kerneldiff": "stages.kerneldiff.stage:KernelDiffStage",
    "bisect": "stages.bisect.stage:BisectStage",
    "benchmark": "stages.benchmark.stage:BenchmarkStage",
    "profile": "stages.profile.stage:ProfileStage",
    "guards": "stages.guards.stage:GuardsStage",
    "report": "stages.report.stage:ReportStage",
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
