"""The minify stage: where the result is wrong or compilation fails, the smallest script that shows it."""

from typing import Any

from inductor_debug.models.input_draws import drawn_inputs
from inductor_debug.models.options import check_declared
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.comparison import Diagnosis
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.minify.compilers import compiler_of
from inductor_debug.stages.minify.declaration import DECLARATION
from inductor_debug.stages.minify.engine import DATA, smallest
from inductor_debug.stages.minify.judges import Compiled
from inductor_debug.stages.numerics.verdict import FAILING
from inductor_debug.stages.repro import NotReproducible
from inductor_debug.stages.repro.fingerprint import fingerprint, operations_of


class MinifyStage(Stage):
    """Runs after kerneldiff where that is selected, also when it crashed, and starts where that says the fault is."""

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError for a backend that can't be built, or a number that an option does not take."""
        check_declared(self.config, "stages.minify")
        build_adapter(context.settings).validate()

    def run(self, context: StageContext) -> StageResult:
        """Returns:
        ``passed`` where nothing fails or a script was verified that shows what does, ``failed`` where none was.
        """
        diagnosis = files.DIAGNOSIS.read(context.artifacts)
        at = _place(diagnosis)
        if diagnosis is not None and diagnosis.verdict not in FAILING and at is None:
            return StageResult("passed", f"nothing to minify: kerneldiff's verdict is {diagnosis.verdict}")
        if diagnosis is not None and (diagnosis.error or {}).get("side") == "reference":
            return StageResult("skipped", f"kerneldiff has no reference: {diagnosis.message}")
        try:
            compiler = compiler_of(build_adapter(context.settings), context.settings.backend.options)
        except NotReproducible as error:
            return StageResult("failed", f"no script: {error}")
        with drawn_inputs(context.case, 0 if diagnosis is None or diagnosis.draw <= 1 else diagnosis.draw):
            found = smallest(context.case, Compiled(compiler), self.config, at=at, progress=context.progress)
        if not found.script:
            return StageResult("failed" if diagnosis is not None else "passed", found.message)
        path = files.REPRO.at(f"minified-{found.graph}-{found.node}.py")
        same = fingerprint(found.failure, context.settings.backend.shown, *operations_of(found.script))
        record = ReproRecord(path, found.failure.partition(" ")[0], found.operations, found.verified, found.reason,
                             found.target, found.graph, found.node, failure=found.failure,
                             fingerprint=same)  # fmt: skip
        artifacts: dict[str, Any] = {path: found.script}
        if found.data:
            artifacts[files.REPRO.at(DATA)] = found.data
        return StageResult("passed" if found.verified else "failed", found.message, artifacts, {"repros": [record]})


def _place(diagnosis: Diagnosis | None) -> tuple[str, list[str]] | None:
    """The graph and the nodes of the first operation at fault, where that is known."""
    localized = None if diagnosis is None else diagnosis.localized
    if localized is None or not localized.culprits:
        return None
    place = localized.culprits[0].place
    return place.graph, place.operations
