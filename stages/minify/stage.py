"""The minify stage: where the result is wrong or compilation fails, the smallest script that shows it."""

import contextlib
import dataclasses
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inductor_debug.models.input_draws import drawn_inputs
from inductor_debug.models.options import check_declared
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.minimization import MinifiedRecord
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import Artifacts, Stage, StageContext, StageResult
from inductor_debug.stages.formatting import closed, in_lines, in_one_line
from inductor_debug.stages.minify.anywhere import smallest_anywhere
from inductor_debug.stages.minify.compilers import compiler_of
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.declaration import DECLARATION
from inductor_debug.stages.minify.engine import DATA, Minified, smallest
from inductor_debug.stages.minify.failures import Failure
from inductor_debug.stages.minify.judges import Command, Compiled, check_words
from inductor_debug.stages.minify.known import Known, Nothing, known_failure
from inductor_debug.stages.repro.fingerprint import fingerprint, operations_of

log = logging.getLogger(__name__)


class MinifyStage(Stage):
    """Runs last, also after a stage that crashed or hung, and starts where kerneldiff says that the fault is."""

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError for a backend that can't be built, or a number that an option does not take."""
        check_declared(self.config, "stages.minify")
        build_adapter(context.settings).validate()
        if self.config.command:
            check_words(self.config.command)

    def run(self, context: StageContext) -> StageResult:
        """Look for the failure that earlier stages met; for any, where none of them compiles with the backend.

        Returns:
            ``passed`` where nothing failed, or a verified script shows what did; ``failed`` where the run fails and no
            such script was found, or where this stage itself found the failure. ``skipped`` where it can't look or came
            to no answer in time, and where a run that passes has an operation at fault that no script shows.
        """
        known = Known() if self.config.command else known_failure(context.artifacts, context.earlier)
        if isinstance(known, Nothing):
            return StageResult(known.status, known.message)
        try:
            found = self._search(context, known)
        except Exception as error:
            log.exception("no script was found")
            return _without_script(known, closed(f"Not established: the search ended with {in_one_line(error, 2)}"))
        if not found.script and not known.stage:
            return StageResult("passed" if found.looked else "skipped", found.message, repeatable=found.looked)
        if not found.script:
            return _without_script(
                known, f"Not established: no script shows what {known.stage} met ({known.expected}). {found.message}"
            )
        result = _result(context, known, found)
        return dataclasses.replace(result, repeatable=found.minimal and found.verified and not self.config.command)

    def _search(self, context: StageContext, known: Known) -> Minified:
        compiler = compiler_of(build_adapter(context.settings), context.settings.backend.options)
        compiled = Compiled(compiler)
        options = _in_time(self.config, context.time_s)

        def wanted(failure: Failure) -> bool:
            return known.is_it(failure.text)

        with drawn_inputs(context.case, known.draw), _kept(context.unfinished) as folder:
            if self.config.command:
                judge = Command(self.config.command, compiled)
                found = smallest(context.case, judge, options, folder=folder, progress=context.progress)
            else:
                further = [(context.case.args, context.case.kwargs)] * (known.calls - 1)
                found = smallest_anywhere(context.case, compiled, options, at=known.at, calls=further, wanted=wanted,
                                          folder=folder, progress=context.progress)  # fmt: skip
            if folder is not None and (found.minimal or not found.script):
                shutil.rmtree(folder)
        return found


def _in_time(options: MinifyConfig, time_s: float | None) -> MinifyConfig:
    """The options with which the stage ends before the runner ends it: it runs a last program, and the script."""
    if time_s is None:
        return options
    return dataclasses.replace(
        options, budget_s=min(options.budget_s, time_s / 2), limit_s=min(options.limit_s, time_s / 8)
    )


@contextlib.contextmanager
def _kept(unfinished: Path | None) -> Iterator[Path | None]:
    """The folder in which a search goes on that was cut short; afterwards what is known of each program stays there."""
    if unfinished is None:
        yield None
        return
    folder = unfinished / DECLARATION.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    except Exception:
        shutil.rmtree(folder)
        raise
    finally:
        for file in folder.rglob("*.pt"):
            file.unlink()
        with contextlib.suppress(OSError):  # it is kept where something is known
            unfinished.rmdir()


def _without_script(known: Known, message: str) -> StageResult:
    return StageResult("failed" if known.fails else "skipped", message, repeatable=False)


def _result(context: StageContext, known: Known, found: Minified) -> StageResult:
    name = f"minified-{found.graph or 'module'}-{found.node or 'model'}"
    path, kernel = files.REPRO.at(f"{name}.py"), files.REPRO.at(f"{name}.kernel.txt") if found.kernel else ""
    source = found.source or _source(context.artifacts, found.graph, found.node)
    same = fingerprint(found.failure, context.settings.backend.shown, *operations_of(found.script))
    repro = ReproRecord(path, found.failure.partition(" ")[0], found.operations, found.verified, found.reason,
                        found.target, found.graph, found.node, source, failure=found.failure,
                        fingerprint=same)  # fmt: skip
    facts = MinifiedRecord(
        found.message, known.stage, known.expected, path, kernel, found.failure, found.graph, found.node, found.target,
        source, found.operations, found.before, found.minimal, found.verified, found.reason, found.tried,
        round(found.seconds, 3),
    )  # fmt: skip
    stored: dict[str, Any] = {path: found.script, files.MINIFIED.path: facts}
    if kernel:
        stored[kernel] = found.kernel
    if found.data:
        stored[files.REPRO.at(DATA)] = found.data
    explained = bool(known.stage) and found.verified
    status = "passed" if explained else _without_script(known, "").status
    told, *figures = found.message.split("\n")
    message = in_lines(f"{told} Run it, in the run's folder: python {path}", *figures)
    return StageResult(status, message, stored, {"repros": [repro]})


def _source(artifacts: Artifacts, graph: str, name: str) -> str:
    """The line of the model that a node came from; empty where no stage captured its graph."""
    captured = files.GRAPH.read(artifacts, graph)
    node = None if captured is None else captured.by_name.get(name)
    return "" if node is None or node.source is None else str(node.source)
