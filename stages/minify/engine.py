"""Looks for the smallest program in the graphs of a case."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save

from inductor_debug.models.case import Case
from inductor_debug.stages.formatting import counted, in_lines
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.localize.sources import Origin
from inductor_debug.stages.minify.candidate import Operations, Recorded, Stored, TensorGiven
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.dynamo_graphs import dynamo_graphs
from inductor_debug.stages.minify.failures import HANG, Failure
from inductor_debug.stages.minify.judges import Judge
from inductor_debug.stages.minify.minimize import AGAIN, Minimized, minimized
from inductor_debug.stages.minify.script import About
from inductor_debug.stages.minify.source import target_of
from inductor_debug.stages.minify.trials import Trials
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import NotReproducible
from inductor_debug.stages.torch_internals import dynamo
from inductor_debug.stages.torch_internals.generated_source import SCRIPT, kernels_printed

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
        failure: what it shows, as the text of a :class:`~stages.minify.failures.Failure`; empty if nothing.
        graph, node, target: id of the graph that it is a part of, and its last operation.
        operations, before: how many it has, and the graph had.
        minimal: whether the failure is gone as soon as any one of them is left out.
        verified: whether a fresh process showed the failure; ``reason`` says why not.
        tried: programs that were executed.
        seconds: wall clock.
        rate: the share of its runs that showed it.
        source: line of the model that its last operation comes from; empty where that is not known.
        kernel: the kernels that TorchInductor generates for it; empty for another backend, or where it generates none.
        limit_s: seconds after which a program was taken to hang in the end; 0 where none was tried.
        looked: whether the search came to an answer; without one, nothing that was found says nothing.
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
    rate: float = 1.0
    source: str = ""
    kernel: str = ""
    looked: bool = True
    limit_s: float = 0.0

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
    judge: Judge,
    options: MinifyConfig,
    *,
    at: Place | None = None,
    dynamic: bool | None = None,
    wanted: Callable[[Failure], bool] = lambda failure: True,
    folder: Path | None = None,
    workers: Workers | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Minified:
    """The smallest program of the graphs of a case.

    AOTAutograd's graphs are looked at first, forward and backward, and then Dynamo's: where AOTAutograd's show no
    failure as programs of their own, or another one than Dynamo's.

    Args:
        case: left as found.
        judge: says of programs whether they show the failure.
        options: how long to look.
        at: where the failure is known to be.
        dynamic: as ``torch.compile`` takes it.
        wanted: which failures are looked for.
        folder: where programs and what is known of them stay; None for nowhere.
        workers: run the programs, with the judge's packages; None starts some.
        progress: told of each step.
    """
    began = time.monotonic()
    with TemporaryDirectory(prefix="minify-") as temporary:
        with nullcontext(workers) if workers else Workers(packages=judge.packages) as running:
            progress("starting a process that has torch imported, for programs to be forked from")
            running.start(compiles_cpp=judge.compiles_cpp)
            trials = Trials(running, judge, limit_s=options.limit_s, budget_s=options.budget_s)
            search = _Search(case, dynamic, trials, folder or Path(temporary), wanted, progress)
            found = search.look(at)
            if found is None:
                told = Minified(_nothing(search), looked=not trials.cut, limit_s=trials.limit_s)
            else:
                progress("running the script in a fresh process")
                told = search.told(*found)
        told.tried, told.seconds = trials.executed, time.monotonic() - began
        return told


def _nothing(search: "_Search") -> str:
    """Why there is no script."""
    trials = search.trials
    if trials.cut:
        return "Not established: the budget was spent before all graphs were looked at. Try: a larger budget_s"
    why = f" The last that could not run: {trials.refused}" if trials.refused else ""
    other = f" One shows another than was met: {trials.other}." if trials.other else ""
    return f"No failure: of {counted(search.graphs, 'graph')} none shows it as a program of its own.{other}{why}"


@dataclass(frozen=True)
class _Graph:
    """A graph with what it was given and gave, where its nodes are from, and whether its programs take gradients."""

    id: str
    call: int
    run: Recorded
    origins: Mapping[str, Origin]
    training: bool = False


def _source(graph: _Graph, name: str) -> str:
    """The line of the model that a node comes from; empty where that is not known."""
    origin = graph.origins.get(name)
    return "" if origin is None or not origin.source else str(origin.source)


@dataclass
class _Search:
    """A search through the graphs of a case."""

    case: Case
    dynamic: bool | None
    trials: Trials
    folder: Path
    wanted: Callable[[Failure], bool]
    progress: Callable[[str], None]
    graphs: int = 0

    def look(self, at: Place | None) -> tuple[_Graph, Minimized] | None:
        """The first graph that shows a failure, and the smallest part of it that does."""
        self.progress("running each operation by torch, to know what it receives")
        lower = self._recorded(self._aot_graphs)
        if at is not None:
            for graph in (item for item in lower if item.id == at[0]):
                if found := self._minimized(graph, 0, at[1]):
                    return graph, found
        upper = self._recorded(self._dynamo_graphs)
        self.graphs = len(lower)
        known = self._known_of(upper) if self.trials.judge.packages else False
        for times in (1,) if known else (1, AGAIN):
            for graph in [*lower, *upper]:
                if not known and self.trials.executed and self.trials.over():
                    self.trials.cut = True
                    return None
                if found := self._minimized(graph, times):
                    return graph, found
        return None

    def _known_of(self, graphs: Sequence[_Graph]) -> bool:
        """Whether one of Dynamo's graphs shows the failure, which is then looked for in AOTAutograd's.

        A backend that takes Dynamo's graphs may refuse AOTAutograd's for another reason. What takes too long may do so
        for any.
        """
        for graph in graphs:
            operations = self._operations(graph)
            try:
                failure = self.trials.found(operations.candidate(range(len(operations.units))))
            except NotReproducible:
                continue
            if failure is not None and failure.kind != HANG and self.wanted(failure):
                self.wanted = failure.__eq__
                return True
        return False

    def _recorded(self, record: Callable[[], list[_Graph]]) -> list[_Graph]:
        dynamo.reset()
        try:
            with dynamo.dynamic_shapes(self.dynamic):
                return record()
        finally:
            dynamo.reset()

    def _aot_graphs(self) -> list[_Graph]:
        run = reference_run(self.case, None)
        return [_Graph(seen.id, seen.call, seen, run.origins[seen.id]) for seen in run.seen]

    def _dynamo_graphs(self) -> list[_Graph]:
        return [_Graph(item.id.removesuffix(".dynamo"), item.call, item, item.origins, item.training)
                for item in dynamo_graphs(self.case)]  # fmt: skip

    def _operations(self, graph: _Graph) -> Operations:
        self.trials.move(self._folder(graph))
        return Operations(graph.run, self.trials.keep, training=graph.training)

    def _minimized(self, graph: _Graph, times: int, names: Sequence[str] = ()) -> Minimized | None:
        """The smallest part of a graph: that of some nodes, or of all where it is called so often, if at all."""
        operations = self._operations(graph)
        start = operations.index(names)
        return minimized(operations, self.trials, starts=[start] if start else [], calls=[times] if times else [],
                         wanted=self.wanted, progress=self.progress)  # fmt: skip

    def told(self, graph: _Graph, found: Minimized) -> Minified:
        """The script of what was found, run in a fresh process."""
        candidate, failure, judge = found.candidate, found.failure, self.trials.judge
        names = [item.values.name for item in candidate.given
                 if isinstance(item, TensorGiven) and isinstance(item.values, Stored)]  # fmt: skip
        tensors = {name: self.trials.kept(name) for name in names}
        several = "" if candidate.operations == 1 else "a program that ends in "
        title = judge.what(failure, f"{several}{target_of(candidate.last)}")
        text = judge.final(candidate, failure, About(DATA, title, self._notes(graph, found), self.trials.limit_s))
        data = save(tensors) if tensors else b""
        (beside := self._folder(graph) / DATA).write_bytes(data)
        kernel = kernels_printed(self.trials.printed(SCRIPT, text, beside)) if judge.backend == "'inductor'" else ""
        for _ in range(self.trials.repeats):
            checked = judge.verified(text, failure, [beside], self.trials.limit_s)
            if checked.verified:
                break
        size = counted(candidate.operations, "operation")
        message = f"{title} {size} of {found.before} {'shows' if candidate.operations == 1 else 'show'} it"
        message += "" if found.minimal else ", the fewest that were found in time"
        message += ", in a fresh process too." if checked.verified else f". Not verified: {checked.reason}."
        large = f"The script has {len(text):,} bytes, for {size}." if len(text) > LARGE else ""
        return Minified(in_lines(message, large), text, data, failure.text, graph.id, candidate.last.name,
                        target_of(candidate.last), candidate.operations, found.before, found.minimal,
                        checked.verified, checked.reason, rate=found.rate,
                        source=_source(graph, candidate.last.name), kernel=kernel)  # fmt: skip

    def _folder(self, graph: _Graph) -> Path:
        folder = self.folder / f"{graph.id}.{graph.call}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _notes(self, graph: _Graph, found: Minimized) -> list[str]:
        """What the script says below its first line."""
        last = found.candidate.last
        source = _source(graph, last.name)
        where = f", {last.name} at {source}" if source else ""
        notes = [f"{counted(found.candidate.operations, 'operation')} of the {found.before} of {graph.id}{where}.",
                 f"Found with torch {torch.__version__}."]  # fmt: skip
        if found.rate < 1:
            notes.append(f"It does not show each time: in {found.rate:.0%} of the runs.")
        return notes
