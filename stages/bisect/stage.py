"""The bisect stage: where the result is wrong or compilation fails, which part of the compiler it takes."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from inductor_debug.models.options import check_declared
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.bisect.declaration import DECLARATION
from inductor_debug.stages.bisect.engine import Investigation, Probing
from inductor_debug.stages.bisect.messages import UNKNOWN, record_of, rows
from inductor_debug.stages.config_json import from_primitives
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.formatting import because, in_lines
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.numerics.verdict import FAILING


class BisectStage(Stage):
    """Runs after kerneldiff where that is selected, also when it crashed; without it, it compares for itself."""

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError for a backend that can't be built, or a number that an option does not take."""
        from inductor_debug.stages.backends.registry import build_adapter

        check_declared(self.config, "stages.bisect")
        build_adapter(context.settings).validate()

    def run(self, context: StageContext) -> StageResult:
        """Returns:
        ``passed`` where there is no fault, ``failed`` where there is one, whether it was explained or not.
        """
        diagnosis = files.DIAGNOSIS.read(context.artifacts)
        if diagnosis is not None and diagnosis.verdict not in FAILING:
            return StageResult("passed", f"There is nothing to bisect: kerneldiff's verdict is {diagnosis.verdict}.")
        if diagnosis is not None and (diagnosis.error or {}).get("side") == "reference":
            return StageResult("skipped", because("There is nothing to compare with", diagnosis.message))
        options = from_primitives(KernelDiffConfig, files.COMPARISON_OPTIONS.read(context.artifacts) or {})
        if diagnosis is not None and diagnosis.draw > 1:
            options = dataclasses.replace(options, draw=diagnosis.draw)
        isolate = diagnosis is None if self.config.isolate is None else self.config.isolate
        with _prober(context, options, isolate, self.config.timeout_s) as prober:
            result = Investigation(prober, self.config, context.progress).run()
        artifacts: dict[str, Any] = {
            files.BISECTION.path: record_of(result),
            files.PROBES.path: files.PROBES.frame(rows(result)),
        }
        healthy = result.verdict == "none" and result.fault is None
        if healthy and diagnosis is not None:  # whose verdict is a fault
            told = because(UNKNOWN, "kerneldiff's fault did not show again in a run that compiles and calls once")
            return StageResult("failed", in_lines(told, result.answer), artifacts)
        return StageResult("passed" if healthy else "failed", result.answer, artifacts)


@contextlib.contextmanager
def _prober(context: StageContext, options: KernelDiffConfig, isolate: bool, timeout_s: float) -> Iterator[Probing]:
    from inductor_debug.stages.backends.registry import build_adapter
    from inductor_debug.stages.bisect.isolated import IsolatedProber
    from inductor_debug.stages.bisect.probing import Prober

    if not isolate:
        yield Prober(context, options, lambda: build_adapter(context.settings))
        return
    prober = IsolatedProber(context.settings, options, timeout_s)
    try:
        yield prober
    finally:
        prober.close()
