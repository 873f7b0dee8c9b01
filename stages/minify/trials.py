"""Programs tried, each as the script that it would be, in a process of its own."""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from inductor_debug.models.stored import whole_lines
from inductor_debug.stages.minify.candidate import Candidate, Stored, TensorGiven, span
from inductor_debug.stages.minify.failures import HANG, Failure, said
from inductor_debug.stages.minify.judges import Judge
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import NotReproducible

LEAST_S = 3.0
"""Seconds below which no program is taken to hang, once a failure is known to be a hang."""

LONGER = 3
"""What takes so many times as long as a program that came to an end, by the number of operations, hangs then."""

COMPARABLE = 10
"""A program that came to an end says nothing of those that have over so many times its operations."""

WORDS = 8 << 10
"""Characters kept of what a program printed that shows a failure."""


@dataclass(frozen=True)
class _Known:
    """What is known of a program: the text of its failure, how often it was run, the end of what it printed, and how
    long it was allowed to take."""

    found: str | None
    times: int
    output: str = ""
    limit_s: float = 0.0


class Trials:
    """What programs show.

    What is known of a program is stored, by its source, the numbers that it reads and torch's version: a search that
    was ended goes on from there.

    Args:
        workers: run the scripts.
        judge: decides of each.
        limit_s: seconds after which a program is taken to hang.
        budget_s: seconds from now after which nothing more is to be run.

    Attributes:
        executed: how many programs ran.
        refused: why the last program was none that torch itself runs.
        output: what the last one printed if it showed a failure, the end of it.
        other: a failure that is not looked for, which a whole graph shows.
        cut: whether a program was ended by the budget, before it could be said to hang.
        repeats: how often one runs at most until it shows a failure that does not show each time.
        hangs: whether the failure that is looked for is a hang: see :meth:`usual_s`.
    """

    def __init__(
        self, workers: Workers, judge: Judge, *, limit_s: float = 60.0, budget_s: float = math.inf
    ) -> None:  # fmt: skip
        self.judge, self.limit_s = judge, limit_s
        self.executed, self.repeats, self.refused, self.output, self.other = 0, 1, "", "", ""
        self.cut = self.hangs = False
        self._least_s = limit_s
        self._until, self._ended = time.monotonic() + budget_s, (0, 0.0)
        self._workers, self._folder = workers, Path()
        self._known: dict[str, _Known] = {}
        self._digests: dict[str, str] = {}

    def usual_s(self, operations: int) -> float | None:
        """Seconds above which so many operations take unusually long; None where only far smaller programs ended."""
        largest, seconds = self._ended
        return (
            None if largest * COMPARABLE < operations else LEAST_S + LONGER * seconds * max(1.0, operations / largest)
        )

    def over(self) -> bool:
        """Whether time is up."""
        return time.monotonic() > self._until

    def move(self, folder: Path) -> None:
        """Go on to a graph, whose tensors and programs have a folder of their own."""
        self._folder, self._known, self._digests, self.repeats = folder, {}, {}, 1
        if self._store.is_file():
            for entry in whole_lines(self._store):
                key = entry.pop("program")
                self._known[key] = _Known(**entry)

    @property
    def _store(self) -> Path:
        return self._folder / "known.jsonl"

    def keep(self, name: str, value: torch.Tensor) -> None:
        """Store a tensor's numbers for programs that are given them."""
        flat = numbers(value)
        torch.save(flat, self._folder / f"{name}.pt")
        self._digests[name] = hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()

    def kept(self, name: str) -> torch.Tensor:
        """A tensor's numbers, as :func:`numbers` gives them."""
        found: torch.Tensor = torch.load(self._folder / f"{name}.pt")
        return found

    def _limit_s(self, operations: int) -> float:
        """Seconds that a program may take."""
        usual_s = self.usual_s(operations) if self.hangs else None
        return self.limit_s if usual_s is None else usual_s

    def found(self, candidate: Candidate) -> Failure | None:
        """What a program shows; None also for one that can't be written or that torch itself does not run."""
        try:
            text = self.judge.text(candidate, str(self._folder))
        except NotReproducible as error:
            self.refused = str(error)
            return None
        read = [self._digests[item.values.name] for item in candidate.given
                if isinstance(item, TensorGiven) and isinstance(item.values, Stored)]  # fmt: skip
        key = hashlib.sha256("\n".join([torch.__version__, *read, text]).encode()).hexdigest()
        limit_s = self._limit_s(candidate.operations)
        known = self._known.get(key, _Known(None, 0))
        if known.found == HANG and known.limit_s < limit_s:  # it may have been slow
            known = _Known(None, 0)
        while known.found is None and known.times < self.repeats:
            found, done = self._once(text, candidate.operations)
            if not done:
                return None
            output = self.output[-WORDS:] if found else ""
            known = self._known[key] = _Known(found, known.times + 1, output, limit_s)
            with self._store.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"program": key, **vars(known)}) + "\n")
        self.output = known.output
        return None if known.found is None else Failure.named(known.found)

    def rate(self, candidate: Candidate, failure: Failure, times: int) -> float:
        """The share of so many further runs that show the failure."""
        text = self.judge.text(candidate, str(self._folder))
        return sum(self._once(text, candidate.operations)[0] == failure.text for _ in range(times)) / times

    def printed(self, program: str, script: str, beside: Path) -> str:
        """What a program prints that is given the path of a script; ``beside`` is the file that the script reads."""
        with TemporaryDirectory(dir=self._folder) as folder:
            paths = [Path(folder) / name for name in ("program.py", "repro.py")]
            for path, text in zip(paths, (program, script), strict=True):
                path.write_text(text, encoding="utf-8")
            shutil.copy(beside, folder)
            return self._workers.run(paths[0], str(paths[1]), timeout_s=self.limit_s).output

    def _once(self, text: str, operations: int) -> tuple[str | None, bool]:
        """What one run shows, and whether it came to an end or to its limit."""
        self.executed += 1
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
        path.write_text(text, encoding="utf-8")
        limit_s = self._limit_s(operations)
        allowed_s = min(limit_s, max(self._until - time.monotonic(), self._least_s))
        try:
            outcome = self.judge.outcome(self._workers, path, allowed_s)
        finally:
            path.unlink()
        if outcome.timed_out and allowed_s < limit_s:
            self.cut = True
            return None, False
        if said(outcome) and operations >= self._ended[0]:
            self._ended = operations, outcome.seconds
        found = self.judge.failure(outcome)
        if found is not None:
            self.output = outcome.output
        elif not said(outcome):
            self.refused = (outcome.output.strip().splitlines() or ["it printed nothing"])[-1]
        return None if found is None else found.text, True


def numbers(value: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor's memory from its first to its last, on the CPU; zeros where it has gaps."""
    value = value.detach()
    for dimension, stride in enumerate(value.stride()):
        if stride == 0 and value.shape[dimension]:
            value = value.narrow(dimension, 0, 1)
    flat = torch.zeros(span(value.shape, value.stride()), dtype=value.dtype)
    flat.as_strided(value.shape, value.stride()).copy_(value)
    return flat


Shows = Callable[[Candidate], bool]
"""Whether a program shows the failure that is looked for."""
