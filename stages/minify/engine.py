"""Looks for the smallest program in the graphs of a case."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save

from inductor_debug.models.case import Case
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.localize.runs.reference import ReferenceRun, reference_run
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.minify.candidate import Operations, Stored, TensorGiven
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.failures import DEFECT
from inductor_debug.stages.minify.minimize import Minimized, minimized
from inductor_debug.stages.minify.script import Compiler, script
from inductor_debug.stages.minify.trials import Trials
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import Script, verify
from inductor_debug.stages.repro.verify import TIMEOUT_S
from inductor_debug.stages.torch_internals import dynamo

LARGE = 20 << 10
"""Bytes above which a message says how large a script is, and why."""

Place = tuple[str, Sequence[str]]
"""A graph's id, and names of its nodes."""


@dataclass
class Minified:
    """The smallest program that was found; ``str()`` of it is the message.

    Attributes:
        message: what was found, in words.
        script: its text; empty where nothing was found.
        data: the safetensors file that it reads beside it; empty where all inputs are drawn.
        failure: what it shows: ``defect``, ``error TYPE in …``, ``signal NUMBER``, ``hang``; empty if nothing.
        graph, node, target: id of the graph that it is a part of, and its last operation.
        operations, before: how many it has, and the graph had.
        minimal: whether the failure is gone as soon as any one of them is left out.
        verified: whether a fresh process showed the failure; ``reason`` says why not.
        tried: programs that were executed.
        seconds: wall clock.
    """

    message: str
    script: str = ""
    data: bytes = field(default=b"", repr=False)
    failure: str = ""
    graph: str = ""
    node: str = ""
    target: str = ""
    operations: int = 0
    before: int = 0
    minimal: bool = False
    verified: bool = False
    reason: str = ""
    tried: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return self.message

    def save(self, path: Path) -> None:
        """Write the script, and beside it the file that it reads if there is one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.script, encoding="utf-8")
        if self.data:
            path.with_name(DATA).write_bytes(self.data)


DATA = "repro.safetensors"
"""Name of the file beside a script."""


def smallest(
    case: Case,
    compiler: Compiler,
    options: MinifyConfig,
    *,
    at: Place | None = None,
    factor: float = 4.0,
    folder: Path | None = None,
    workers: Workers | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Minified:
    """The smallest program of the AOT graphs of a case.

    Args:
        case: left as found.
        compiler: what programs are compiled with.
        options: how long to look.
        at: where the failure is known to be.
        factor: error over that of eager above which a result is wrong.
        folder: where programs and what is known of them stay; None for nowhere.
        workers: run the programs, with the compiler's packages; None starts some.
        progress: told of each step.
    """
    began = time.monotonic()
    progress("running each operation by torch, to know what it receives")
    dynamo.reset()
    try:
        run = reference_run(case, None)
    finally:
        dynamo.reset()
    with TemporaryDirectory(prefix="minify-") as temporary:
        place = folder or Path(temporary)
        with nullcontext(workers) if workers else Workers(packages=compiler.packages) as running:
            trials = Trials(running, compiler, factor=factor, limit_s=options.limit_s)
            search = _Search(run, trials, place, lambda: time.monotonic() - began > options.budget_s, progress)
            found = search.look(at)
        if found is None:
            why = f" The last that could not run: {trials.refused}" if trials.refused else ""
            told = Minified(f"No failure: of {counted(len(run.seen), 'graph')} none shows one as a program of its own."
                            f"{why}")  # fmt: skip
        else:
            progress("running the script in a fresh process")
            told = search.told(*found)
        told.tried, told.seconds = trials.executed, time.monotonic() - began
        return told


@dataclass
class _Search:
    """A search through the graphs of a run."""

    run: ReferenceRun
    trials: Trials
    folder: Path
    over: Callable[[], bool]
    progress: Callable[[str], None]

    def look(self, at: Place | None) -> tuple[Seen, Minimized] | None:
        """The first graph that shows a failure, and the smallest part of it that does."""
        for seen in sorted(self.run.seen, key=lambda item: at is not None and item.id != at[0]):
            self.trials.move(self._folder(seen))
            operations = Operations(seen, self.trials.keep)
            start = operations.index(at[1]) if at is not None and seen.id == at[0] else []
            found = minimized(operations, self.trials, starts=[start] if start else [], over=self.over,
                              progress=self.progress)  # fmt: skip
            if found is not None:
                return seen, found
        return None

    def told(self, seen: Seen, found: Minimized) -> Minified:
        """The script of what was found, run in a fresh process."""
        candidate, failure, compiler = found.candidate, found.failure, self.trials.compiler
        names = [item.values.name for item in candidate.given
                 if isinstance(item, TensorGiven) and isinstance(item.values, Stored)]  # fmt: skip
        tensors = {name: self.trials.kept(name) for name in names}
        title, notes = self._words(seen, found)
        text = script(candidate, compiler, failure, data=DATA, title=title, notes=notes, factor=self.trials.factor,
                      limit_s=self.trials.limit_s)  # fmt: skip
        data = save(tensors) if tensors else b""
        (beside := self._folder(seen) / DATA).write_bytes(data)
        item = Script("repro", text, f"FOUND {failure.text}", beside=(beside,), packages=compiler.packages)
        for _ in range(self.trials.repeats):
            [checked] = verify([item], timeout_s=TIMEOUT_S + self.trials.limit_s)
            if checked.verified:
                break
        size = counted(candidate.operations, "operation")
        message = f"{title} {size} of {found.before}"
        message += "" if found.minimal else ", the fewest that were found in time"
        message += "; verified" if checked.verified else f"; not verified: {checked.reason}"
        message += f"; the script has {len(text):,} bytes, for {size}" if len(text) > LARGE else ""
        return Minified(f"{message}.", text, data, failure.text, seen.id, candidate.last.name,
                        str(candidate.last.target), candidate.operations, found.before, found.minimal,
                        checked.verified, checked.reason)  # fmt: skip

    def _folder(self, seen: Seen) -> Path:
        folder = self.folder / f"{seen.id}.{seen.call}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _words(self, seen: Seen, found: Minimized) -> tuple[str, list[str]]:
        """The first line of the script, and those that follow."""
        last = found.candidate.last
        what = {DEFECT: "computes wrong numbers of"}.get(found.failure.kind, f"gives {found.failure.text} on")
        title = f"torch.compile with {self.trials.compiler.backend} {what} {last.target}."
        origin = self.run.origins[seen.id].get(last.name)
        where = f", {last.name} at {origin.source}" if origin is not None and origin.source else ""
        notes = [f"{counted(found.candidate.operations, 'operation')} of the {found.before} of {seen.id}{where}.",
                 f"Found with torch {torch.__version__}."]  # fmt: skip
        if found.rate < 1:
            notes.append(f"It does not show each time: in {found.rate:.0%} of the runs.")
        return title, notes
