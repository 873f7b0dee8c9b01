"""One failure of the corpus: what the tool makes of it, and torch's minifier."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import minified_faults as planted
import minified_models as models
import minified_storms as storms
import torch
from minified_corpus import LIMIT_S, Plant
from minified_torch import Programs, Theirs, TorchMinifier
from minified_violations import Broken

from inductor_debug import minify
from inductor_debug.stages.backends.given import adapter_of
from inductor_debug.stages.backends.inductor import InductorAdapter
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.minify.compilers import compiler_of
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import Minified
from inductor_debug.stages.minify.judges import Compiled
from inductor_debug.stages.minify.modules.engine import smallest_module
from inductor_debug.stages.minify.script import Compiler
from inductor_debug.stages.minify.trials import Trials
from inductor_debug.stages.minify.workers import Workers

OURS, THEIRS, OWN = "ours", "torch", "torch alone"
"""Who minifies: the tool; torch's minifier, where a part fails alike; torch's minifier as torch uses it for what does
not compile, where a part fails in any way."""

Row = dict[str, Any]


def done(plant: Plant, by: str, ours: Row | None, device: str, budget_s: float, workers: Workers) -> Row:
    """A row of the table.

    Args:
        plant: the failure.
        by: :data:`OURS`, :data:`THEIRS`, :data:`OWN`.
        ours: the row of the tool, for torch's minifier.
        device: ``cpu`` or ``cuda``.
        budget_s: seconds of the search.
        workers: run programs.
    """
    began = time.monotonic()
    row: Row = {"case": plant.name, "by": by, "class": plant.of, "device": device, "torch": torch.__version__}
    try:
        trial = Trial(plant, device, budget_s, workers)
        row |= trial.ours() if by == OURS else trial.theirs(ours or {}, by)
    except Exception as error:  # noqa: BLE001 - a row of the table
        row["raised"] = f"{type(error).__name__}: {error}"[:500]
    return row | {"in_all_s": round(time.monotonic() - began, 1)}


@dataclass(frozen=True)
class Trial:
    """A failure of the corpus."""

    plant: Plant
    device: str
    budget_s: float
    workers: Workers

    def ours(self) -> Row:
        """What the tool makes of it."""
        if self.plant.of == "violation":
            return self._violation()
        if self.plant.of == "storm":
            return self._told(self._storm(), at=False)
        found, at = self._smallest(), False
        if not found.failure and self.plant.of == "defect":  # no result shows it: as localize() would name it
            place = self.plant.nodes(models.graphs(self._built(), self.plant.symbolic))
            found, at = self._smallest(place), True
        return self._told(found, at)

    def theirs(self, ours: Row, by: str) -> Row:
        """What torch's minifier makes of it, on the graph in which the tool found it, or in which it was planted."""
        if self.plant.of == "storm":
            return {"why": "it has no counterpart: no graph shows a storm"}
        seen = self._graph(ours.get("graph", ""))
        failure = str(ours.get("failure", ""))

        def accepts(found: str) -> bool:
            return by == OWN or (found == failure if failure else self.plant.is_alike(found))

        if self.plant.of == "violation":
            return self._compared(TorchMinifier(seen, self._broken.test(), accepts, self.budget_s).run())
        with TemporaryDirectory(prefix="minified-") as folder:
            trials = Trials(self.workers, Compiled(self._compiler()), limit_s=self.plant.limit_s)
            trials.move(Path(folder))
            row = self._compared(TorchMinifier(seen, Programs(seen, trials), accepts, self.budget_s).run())
            return row | {"executed": trials.executed}

    def _built(self) -> models.Built:
        return self.plant.built(self.device)

    def _smallest(self, at: Any = None) -> Minified:
        model = self._built()
        config = MinifyConfig(budget_s=self.budget_s, limit_s=self.plant.limit_s)
        with models.sizes(self.plant.symbolic):
            return minify(
                model.module, model.args, model.kwargs, backend=self.plant.backend(), mode=self.plant.mode, at=at,
                inductor=self.plant.options(self.device), config=config, workers=self.workers,
            )  # fmt: skip

    def _told(self, found: Minified, at: bool) -> Row:
        names = ("failure", "graph", "operations", "before", "minimal", "verified", "reason", "message", "seconds")
        return {name: getattr(found, name) for name in names} | {
            "executed": found.tried, "bytes": len(found.script.encode()), "data": len(found.data), "at": at,
            "alike": self.plant.is_alike(found.failure),
        }  # fmt: skip

    @property
    def _broken(self) -> Broken:
        return Broken(self.plant.kind, self.plant.targets, self.plant.graph, self.plant.value)

    def _violation(self) -> Row:
        began = time.monotonic()
        found, graph = self._broken.script(self._built().case, self.plant.symbolic)
        rule = found.record.failure_class
        return {
            "failure": rule, "graph": graph.id, "operations": found.nodes, "minimal": True,
            "before": sum(node.is_operation for node in graph.nodes), "verified": found.verification.verified,
            "reason": found.verification.reason, "message": found.line, "seconds": time.monotonic() - began,
            "executed": 1, "bytes": len(found.text.encode()), "data": 0, "at": False,
            "alike": self.plant.is_alike(rule),
        }  # fmt: skip

    def _storm(self) -> Minified:
        module, calls = storms.planted(self.plant.kind, self.plant.targets, self._built())
        module.train(self.plant.mode == "training")
        until = time.monotonic() + self.budget_s
        config = MinifyConfig(budget_s=self.budget_s, limit_s=LIMIT_S)
        with Workers(packages=[storms.__name__]) as workers:
            result: Minified | None = smallest_module(
                module, calls, Compiler("'eager'"), config, dynamic=False, workers=workers,
                over=lambda: time.monotonic() > until, progress=lambda text: None,
            )  # fmt: skip
        return result if result is not None else Minified("No storm was found.")

    def _graph(self, graph: str) -> Seen:
        """A graph of the model: of that direction in which the failure was found, else planted."""
        direction = graph.rpartition(".")[2]
        seen = models.graphs(self._built(), self.plant.symbolic)
        for wanted in (direction, self.plant.graph):
            for each in seen:
                if wanted and each.id.endswith(wanted):
                    return each
        raise LookupError(f"no graph is a {self.plant.graph}")

    def _compiler(self) -> Compiler:
        backend = self.plant.backend()
        if backend == "inductor":
            return compiler_of(InductorAdapter(inductor=self.plant.options(self.device)))
        return compiler_of(adapter_of(backend))

    def _compared(self, found: Theirs) -> Row:
        return asdict(found) | {"alike": self.plant.is_alike(found.failure)}


@contextmanager
def running() -> Iterator[Workers]:
    """What runs the programs of the corpus, started: that is no part of the seconds of the first search."""
    with Workers(packages=planted.PACKAGES) as workers, TemporaryDirectory(prefix="minified-") as folder:
        script = Path(folder) / "nothing.py"
        script.write_text("", encoding="utf-8")
        workers.run(script)
        yield workers


def serve(tasks: Connection, device: str, budget_s: float, threads: int, folder: str) -> None:
    """Answer each ``(plant, by, ours)`` with a row, until None comes.

    Args:
        tasks: the other end of a pipe.
        device, budget_s: as of :func:`done`.
        threads: of torch, in this process.
        folder: for what is stored meanwhile.
    """
    tempfile.tempdir = folder
    torch.set_num_threads(threads)
    with running() as workers:
        while (task := tasks.recv()) is not None:
            tasks.send(done(*task, device, budget_s, workers))
