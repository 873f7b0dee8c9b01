"""Programs tried, each as the script that it would be, in a process of its own."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import torch

from inductor_debug.stages.minify.candidate import Candidate, Stored, TensorGiven, span
from inductor_debug.stages.minify.failures import Failure, said
from inductor_debug.stages.minify.script import Compiler, script
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import NotReproducible


class Trials:
    """What programs show.

    What is known of a program is stored, by its source, the numbers that it reads and torch's version: a search that
    was ended goes on from there.

    Args:
        workers: run the scripts.
        compiler: what programs are compiled with.
        factor: error over that of eager above which a result is wrong.
        limit_s: seconds after which a program is taken to hang.

    Attributes:
        executed: how many programs ran.
        refused: why the last program was none that torch itself runs.
        repeats: how often one runs at most until it shows a failure that does not show each time.
    """

    def __init__(self, workers: Workers, compiler: Compiler, *, factor: float = 4.0, limit_s: float = 60.0) -> None:
        self.compiler, self.factor, self.limit_s = compiler, factor, limit_s
        self.executed, self.repeats, self.refused = 0, 1, ""
        self._workers, self._folder = workers, Path()
        self._known: dict[str, str | None] = {}
        self._digests: dict[str, str] = {}

    def move(self, folder: Path) -> None:
        """Go on to a graph, whose tensors and programs have a folder of their own."""
        self._folder, self._known, self._digests, self.repeats = folder, {}, {}, 1
        if self._store.is_file():
            for line in self._store.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                self._known[entry["program"]] = entry["found"]

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

    def found(self, candidate: Candidate) -> Failure | None:
        """What a program shows; None also for one that can't be written or that torch itself does not run."""
        try:
            text = script(candidate, self.compiler, data=str(self._folder), factor=self.factor)
        except NotReproducible as error:
            self.refused = str(error)
            return None
        read = [self._digests[item.values.name] for item in candidate.given
                if isinstance(item, TensorGiven) and isinstance(item.values, Stored)]  # fmt: skip
        key = hashlib.sha256("\n".join([torch.__version__, *read, text]).encode()).hexdigest()
        if key not in self._known:
            self._known[key] = self._run(text, key)
            with self._store.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"program": key, "found": self._known[key]}) + "\n")
        said = self._known[key]
        return None if said is None else Failure.named(said)

    def rate(self, candidate: Candidate, failure: Failure, times: int) -> float:
        """The share of so many further runs that show the failure."""
        text = script(candidate, self.compiler, data=str(self._folder), factor=self.factor)
        return sum(self._once(text, "again") == failure.text for _ in range(times)) / times

    def _run(self, text: str, key: str) -> str | None:
        said: str | None = None
        for _ in range(self.repeats):
            said = said or self._once(text, key)
        return said

    def _once(self, text: str, key: str) -> str | None:
        self.executed += 1
        path = self._folder / f"{key[:16]}.py"
        path.write_text(text, encoding="utf-8")
        try:
            outcome = self._workers.run(path, timeout_s=self.limit_s)
        finally:
            path.unlink()
        found = Failure.of(outcome)
        if found is None and not said(outcome):
            self.refused = (outcome.output.strip().splitlines() or ["it printed nothing"])[-1]
        return None if found is None else found.text


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
