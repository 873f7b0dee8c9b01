"""Failures planted at operations drawn by seed: how small is the script of each, and does it fail alike?

Usage: ``python tests/trials/minified_failures.py [--models bert resnet10 …] [--modes inference training] [--kinds abort
…] [--draws 1] [--seed 0] [--seconds 600] [--budget 120] [--torch]``.

Each case is a model, a mode and a kind of failure, in an order drawn by seed, until the seconds are over; a quarter has
symbolic sizes. Its backend fails at one operation's target (``minified_failures_backend.py``) or is TorchInductor with
one of its own injected bugs. A line says what was planted and what the smallest script has; last come the medians.

- ``unseen``: wrong numbers that no graph's results show; the search is then told the operation, as by ``localize()``.
- ``CLASS``, ``UNVERIFIED``, ``LARGE``, ``NOTHING``, ``RAISED``: the script shows another failure than was planted, a
  fresh process does not show it, more than 3 operations are left, nothing was found, the search raised.

With ``--torch`` torch's own minifier reduces the same graph too. What it asks is answered by the same programs in the
same processes, so that it outlives an abort; ``--budget`` seconds end it, which its row then says.
"""

import argparse
import contextlib
import io
import operator
import random
import statistics
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import minified_failures_backend as planted
import torch
from localized_faults import MODELS, case_of
from planted_kinds import resnet10
from torch import fx, nn
from torch._functorch.fx_minifier import minifier

from inductor_debug import minify
from inductor_debug.models.case import Case
from inductor_debug.stages.backends.given import adapter_of
from inductor_debug.stages.backends.inductor import InductorAdapter
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.localize.runs.regions import Seen, computes
from inductor_debug.stages.minify.candidate import Candidate, Given, NumberGiven, Stored, TensorGiven, drawn_like
from inductor_debug.stages.minify.compilers import compiler_of
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import Minified
from inductor_debug.stages.minify.failures import Failure
from inductor_debug.stages.minify.script import Compiler
from inductor_debug.stages.minify.trials import Trials
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.torch_internals import dynamo

import torchvision  # isort: skip - after its operators are known
import transformers  # isort: skip


def odd_bert() -> tuple[nn.Module, tuple[Any, ...]]:
    """A BERT with ReLU, of sizes that are no multiples of 8."""
    config = transformers.BertConfig(
        hidden_size=36, num_hidden_layers=2, num_attention_heads=4, intermediate_size=60, vocab_size=99,
        hidden_act="relu",
    )  # fmt: skip
    return transformers.BertModel(config), (torch.randint(0, 99, (2, 21)),)


def swin() -> tuple[nn.Module, tuple[Any, ...]]:
    model = torchvision.models.SwinTransformer([2, 2], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
    return model, (torch.randn(2, 3, 32, 32),)


def mobilenet() -> tuple[nn.Module, tuple[Any, ...]]:
    rows = [torchvision.models.mobilenetv3.InvertedResidualConfig(*row, 1, 0.25) for row in (
        (16, 3, 16, 16, True, "RE", 2), (16, 3, 72, 24, False, "RE", 2), (24, 5, 96, 40, True, "HS", 2),
    )]  # fmt: skip
    return torchvision.models.MobileNetV3(rows, 64, num_classes=10), (torch.randn(2, 3, 48, 48),)


BUILDERS = MODELS | {"resnet10": resnet10, "odd_bert": odd_bert, "swin": swin, "mobilenet": mobilenet}
RECTIFIED = ("resnet10", "odd_bert", "mobilenet")
"""Models with a ReLU, of which TorchInductor's injected bugs are."""
BUGS = {"accuracy": ("defect",), "compile_error": ("error",), "runtime_error": ("error", "signal")}
KINDS = {
    "refusal": ("error NotImplementedError",), "abort": ("signal 6",), "hang": ("hang",), "wrong": ("defect",),
    "fused": ("defect",), "misaligned": ("error ValueError",), "inductor": ("defect", "error", "signal"),
}  # fmt: skip
"""Kind → how the text of its failure begins. ``fused``: wrong numbers where one operation takes what another gives."""
DYNAMIC = 0.25
"""Share of the cases with symbolic sizes."""
HANGS_S = 8.0
"""Seconds after which a program is taken to hang, where that is what was planted."""
FEW = 3
"""Operations that a smallest program has at most."""


@dataclass
class Plant:
    """A failure, where it was planted, and what was made of it."""

    model: str
    mode: str
    dynamic: bool
    kind: str
    expected: Sequence[str] = ()
    backend: Any = "inductor"
    inductor: dict[str, Any] = field(default_factory=dict)
    targets: tuple[str, ...] = ("aten.relu.default",)
    at: tuple[str, list[str]] | None = None

    def __str__(self) -> str:
        size = "dynamic" if self.dynamic else "static"
        return f"{self.model} {self.mode} {size} {self.kind} {'→'.join(reversed(self.targets))}"

    @property
    def limit_s(self) -> float:
        return HANGS_S if self.kind == "hang" else 60.0

    def is_alike(self, failure: str) -> bool:
        return failure.startswith(tuple(self.expected))


class Models:
    """Models with their graphs as torch runs them, each made once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bool], list[Seen]] = {}

    def seen(self, name: str, mode: str, dynamic: bool) -> list[Seen]:
        key = name, mode, dynamic
        if key not in self._known:
            module, args = built(name, mode)
            dynamo.reset()
            with sizes(dynamic):
                self._known[key] = reference_run(Case.of(module, args, {}, mode), None).seen
            dynamo.reset()
        return self._known[key]


def built(name: str, mode: str) -> tuple[nn.Module, tuple[Any, ...]]:
    with mock.patch.dict(MODELS, BUILDERS):
        return case_of(name, mode, torch.float32)


def sizes(dynamic: bool) -> Any:
    """What ``torch.compile(dynamic=True)`` sets."""
    return torch._dynamo.config.patch(assume_static_by_default=not dynamic)


def drawn(models: Models, plant: Plant, numbers: random.Random) -> Plant | None:
    """The plant at an operation that can have it; None where none can."""
    if plant.kind == "inductor":
        bug = numbers.choice(list(BUGS))
        plant.inductor, plant.expected = {"cpp": {"inject_relu_bug_TESTING_ONLY": bug}}, BUGS[bug]
        return plant if plant.model in RECTIFIED else None
    plant.expected = KINDS[plant.kind]
    sites = [(seen, node) for seen in models.seen(plant.model, plant.mode, plant.dynamic) for node in seen.graph.nodes
             if computes(node) and is_aten(node) and can_have(node, plant.kind)]  # fmt: skip
    if not sites:
        return None
    targets = sorted({str(node.target) for _, node in sites})  # each as likely, however often it is called
    target = numbers.choice(targets)
    seen, node = numbers.choice([site for site in sites if str(site[1].target) == target])
    plant.targets = (target,)
    names = [node.name]
    if plant.kind == "fused":
        before = numbers.choice([item for item in planted.sources(node) if computes(item) and is_aten(item)])
        plant.targets, names = (target, str(before.target)), [before.name, node.name]
    name = planted.name_of("wrong" if plant.kind == "fused" else plant.kind, *plant.targets)
    plant.backend, plant.at = getattr(planted, name), (seen.id, names)
    return plant


def is_aten(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten"


def can_have(node: fx.Node, kind: str) -> bool:
    if kind == "misaligned":
        return planted.is_misaligned(node)
    if kind not in ("wrong", "fused"):
        return True
    value = node.meta["val"]
    value = value[0] if isinstance(value, (tuple, list)) else value
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not node.users:
        return False
    return kind == "wrong" or any(computes(item) and is_aten(item) for item in planted.sources(node))


def smallest(plant: Plant, workers: Workers, options: argparse.Namespace, at: Any = None) -> Minified:
    module, args = built(plant.model, plant.mode)
    config = MinifyConfig(budget_s=options.budget, limit_s=plant.limit_s)
    with sizes(plant.dynamic):
        return minify(module, args, backend=plant.backend, inductor=plant.inductor, mode=plant.mode, at=at,
                      config=config, workers=workers)  # fmt: skip


@dataclass
class Theirs:
    """What torch's minifier made of a graph."""

    operations: int = 0
    queries: int = 0
    seconds: float = 0.0
    why: str = ""


class _TimeIsUp(Exception):
    """Raised in torch's minifier."""


class TorchMinifier:
    """torch's minifier on a graph, with this project's programs as its test."""

    def __init__(self, seen: Seen, failure: Failure, trials: Trials, budget_s: float) -> None:
        self._seen, self._failure, self._trials = seen, failure, trials
        self._until, self.result = time.monotonic() + budget_s, Theirs()
        values = [node.meta.get("val") for node in seen.graph.nodes]
        self._dynamic = any(isinstance(size, torch.SymInt) for value in values if isinstance(value, torch.Tensor)
                            for size in value.shape)  # fmt: skip

    def run(self) -> Theirs:
        """Reduce the graph."""
        began = time.monotonic()
        graph = fx.GraphModule(self._seen.owner, self._seen.graph)
        inputs = [self._seen.inputs[node.name] for node in graph.graph.nodes if node.op == "placeholder"]
        inputs = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
        with contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
            try:
                minifier(graph, inputs, self.fails, dump_state=lambda *_: None)
            except _TimeIsUp:
                self.result.why = "time was up"
            except Exception as error:  # noqa: BLE001 - whatever it raises is a row of the table
                self.result.why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
        self.result.seconds = time.monotonic() - began
        return self.result

    def fails(self, module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        """Whether a candidate shows the failure."""
        if time.monotonic() > self._until:
            raise _TimeIsUp
        self.result.queries += 1
        candidate = self._candidate(module, inputs)
        if self._trials.found(candidate) != self._failure:
            return False
        self.result.operations = min(self.result.operations or candidate.operations, candidate.operations)
        return True

    def _candidate(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Candidate:
        graph, given = fx.Graph(), list[Given]()
        copies: dict[fx.Node, fx.Node] = {}
        left = iter(inputs)
        for node in module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                value = operator.attrgetter(str(node.target))(module) if node.op == "get_attr" else next(left)
                copies[node] = graph.placeholder(node.name)
                copies[node].meta = dict(node.meta)
                given.append(self._given(node.name, value))
            elif node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
                continue
            else:
                graph.output(tuple(_tensors(graph, node, copies)))
        return Candidate(graph, tuple(given), self._dynamic)

    def _given(self, name: str, value: Any) -> Given:
        if not isinstance(value, torch.Tensor):
            return NumberGiven(name, value)
        self._trials.keep(name, value)
        return TensorGiven(name, tuple(value.shape), value.stride(), value.dtype, str(value.device), 0, Stored(name),
                           drawn_like(value))  # fmt: skip


def _tensors(graph: fx.Graph, output: fx.Node, copies: dict[fx.Node, fx.Node]) -> list[fx.Node]:
    """The tensors that a graph gives, taken out of what has several."""
    found: list[fx.Node] = []
    for node in output.all_input_nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            found.append(copies[node])
        for place, item in enumerate(value if isinstance(value, (tuple, list)) else ()):
            if isinstance(item, torch.Tensor):
                found.append(graph.call_function(operator.getitem, (copies[node], place)))
    return found


def theirs_of(plant: Plant, found: Minified, models: Models, workers: Workers, budget_s: float) -> Theirs:
    """The same by torch's minifier."""
    [seen] = [item for item in models.seen(plant.model, plant.mode, plant.dynamic) if item.id == found.graph][:1]
    with TemporaryDirectory(prefix="minified-") as folder:
        trials = Trials(workers, _compiler(plant), limit_s=plant.limit_s)
        trials.move(Path(folder))
        return TorchMinifier(seen, Failure.named(found.failure), trials, budget_s).run()


def _compiler(plant: Plant) -> Compiler:
    if plant.backend == "inductor":
        return compiler_of(InductorAdapter(inductor=plant.inductor))
    return compiler_of(adapter_of(plant.backend))


class Table:
    """The rows, and what is said of them in the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.found: list[Minified] = []
        self.pairs: list[tuple[Minified, Theirs]] = []

    def add(self, plant: Plant, found: Minified, theirs: Theirs | None, unseen: bool) -> None:
        said = ["unseen"] if unseen else []
        said += [] if plant.is_alike(found.failure) else ["CLASS" if found.failure else "NOTHING"]
        said += [] if found.verified or not found.failure else [f"UNVERIFIED ({found.reason[-200:]})"]
        said += ["LARGE"] if found.operations > FEW else []
        said += [] if found.minimal or not found.failure else ["TIME"]
        for word in said:
            self.counts[word.partition(" ")[0]] += 1
        self.found.append(found)
        self.counts["verified"] += found.verified
        self.counts["same class"] += bool(found.failure) and plant.is_alike(found.failure)
        row = (f"{plant}: {found.operations} of {found.before} operations, {found.tried} executed, "
               f"{found.seconds:.1f} s, {'verified' if found.verified else 'not verified'}, "
               f"{len(found.script.encode()):,} bytes, {found.failure or found.message}")  # fmt: skip
        if theirs is not None:
            self.pairs.append((found, theirs))
            row += (f" | torch: {theirs.operations} operations, {theirs.queries} executed, {theirs.seconds:.1f} s"
                    f"{', ' if theirs.why else ''}{theirs.why}")  # fmt: skip
        print(f"{row} {' '.join(said)}".rstrip(), flush=True)

    def summary(self) -> None:
        done = [item for item in self.found if item.failure]
        print(f"{len(self.found)} cases: {dict(self.counts)}")
        if done:
            print(f"{self.counts['verified']} of {len(done)} verified, {self.counts['same class']} of the same class; "
                  f"median {statistics.median(item.operations for item in done):g} operations, "
                  f"at most {max(item.operations for item in done)}; median "
                  f"{statistics.median(item.tried for item in done):g} executed, {sum(i.seconds for i in done):.0f} s "
                  f"in all, at most {max(len(item.script.encode()) for item in done):,} bytes")  # fmt: skip
        ended = [(ours, theirs) for ours, theirs in self.pairs if not theirs.why and ours.minimal]
        if self.pairs:
            more = sum(ours.operations > theirs.operations for ours, theirs in self.pairs)
            fewer = sum(ours.operations < theirs.operations for ours, theirs in self.pairs)
            print(f"{len(self.pairs)} beside torch's minifier, whether they came to an end or not: more operations in "
                  f"{more}, fewer in {fewer}; time was up for this one in "
                  f"{sum(not ours.minimal for ours, _ in self.pairs)}, torch's ended without a result of its own in "
                  f"{sum(bool(theirs.why) for _, theirs in self.pairs)}")  # fmt: skip
        if ended:
            more = sum(ours.operations > theirs.operations for ours, theirs in ended)
            fewer = sum(ours.operations < theirs.operations for ours, theirs in ended)
            print(f"both came to an end in {len(ended)}; of these more operations in {more}, fewer in {fewer}; "
                  f"median executed "
                  f"{statistics.median(ours.tried for ours, _ in ended):g}, by torch's "
                  f"{statistics.median(theirs.queries for _, theirs in ended):g}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    small = ["bert", "gpt2", "resnet10", "vit", "swin", "odd_bert", "mobilenet"]
    parser.add_argument("--models", nargs="+", default=small, choices=BUILDERS)
    parser.add_argument("--modes", nargs="+", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--draws", type=int, default=1, help="cases of each model, mode and kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="after which no case begins")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of one search")
    parser.add_argument("--torch", action="store_true", help="let torch's minifier reduce the same graphs")
    options = parser.parse_args()
    cases = [(draw, model, mode, kind) for draw in range(options.draws) for model in options.models
             for mode in options.modes for kind in options.kinds]  # fmt: skip
    random.Random(options.seed).shuffle(cases)
    models, table, until = Models(), Table(), time.monotonic() + options.seconds
    with Workers(packages=[planted.__name__]) as workers:
        for draw, model, mode, kind in cases:
            if time.monotonic() > until:
                break
            numbers = random.Random(zlib.crc32(f"{options.seed + draw} {model} {mode} {kind}".encode()))
            dynamic = numbers.random() < DYNAMIC
            plant = drawn(models, Plant(model, mode, dynamic, kind), numbers)
            if plant is None:
                continue
            try:
                found = smallest(plant, workers, options)
                unseen = not found.failure and kind in ("wrong", "fused")
                if unseen:
                    found = smallest(plant, workers, options, plant.at)
            except Exception as error:  # noqa: BLE001 - a row of the table
                print(f"{plant}: RAISED {type(error).__name__}: {str(error)[:500]}", flush=True)
                table.counts["RAISED"] += 1
                continue
            theirs = None
            if options.torch and found.failure:
                theirs = theirs_of(plant, found, models, workers, options.budget)
            table.add(plant, found, theirs, unseen)
    table.summary()


if __name__ == "__main__":
    main()
