"""Each kind of planted fault in each graph of a training step, at nodes drawn by seed: is the very node named?

Usage: ``python tests/trials/planted_kinds.py [--models bert resnet10 …] [--kinds scale …] [--only always fused] [--seed
0] [--graphs forward backward] [--node NAME] [--dtype float32] [--backend aot_eager] [--together 1] [--draws 1]``.
``bert_masked`` has a padding mask; ``bert_full``, ``resnet18_full`` and ``ssm_full`` have the sizes of ``conf/model``.

Faults go to ``localize(module, args, backend=PlantedFault(…))``, as many at once as ``--together`` says, each around
the others; 0 for all of a graph. What a call before must have left, or what only later calls show, is looked at in a
third call, by itself. A training step of each model is run by torch once, operation by operation. All plants are held
against that run, of which localization looks at the graph with the plants. A line says what was planted, its effect in
floors on the node and on the graph's outputs, as ``planted_effect.py`` measures it in one call, and what was named:

- ``named``: the very node; of ``only=fused`` a region of it and its neighbours;
- ``wider``: a region that has the node, and more;
- ``unseen``: not, and the effect is below 4 floors on the node, or it does not show in one call and needs none;
- ``MISSED``: not, though the effect is larger.

What is named beside the plants is counted as ``FALSE``.
"""

import argparse
import copy
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from localized_faults import MODELS, case_of
from planted_effect import UNSEEN, Effect, Effects
from torch import Tensor, fx, nn
from torchvision.models.resnet import BasicBlock, ResNet

from inductor_debug import ConfigurationError, localize
from inductor_debug.models import bert, ssm, torchvision_models
from inductor_debug.models.case import Case
from inductor_debug.models.input_draws import drawn_inputs
from inductor_debug.stages.artifacts.localization import Culprit
from inductor_debug.stages.backends.faults.conditions import ALWAYS, FUSED, ONLY, neighbours
from inductor_debug.stages.backends.faults.kinds import FAULTS
from inductor_debug.stages.backends.faults.rewriting import with_fault
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.localize import engine
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.localize.runs.regions import Seen, computes


def resnet10() -> tuple[nn.Module, tuple[Any, ...]]:
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10), (torch.randn(2, 3, 32, 32),)


def masked_bert(*sizes: int, batch: int = 1, length: int = 128) -> tuple[nn.Module, tuple[Any, ...]]:
    """A BERT of which the first text is shorter than the batch's length."""
    module, _, given = bert.build(batch, length, *sizes, dropout=0.0)
    given["attention_mask"][0, length // 2 :] = 0
    return module, tuple(given.values())


OTHERS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "resnet10": resnet10,
    "bert_masked": lambda: masked_bert(999, 2, 128, 4, 256, batch=2, length=32),
    "bert_full": masked_bert,
    "resnet18_full": lambda: torchvision_models.build("resnet18", 1, 224),
    "ssm_full": lambda: ssm.build(1, 128),
}
STRENGTHS = {"scale": 1e-3, "dropped_tail": 16, "from_nth_call": 3}
"""Of the kinds whose own strength is another."""
BACKWARD = ("gradient_sign", "missing_accumulation")
"""Kinds of the backward alone."""
LATER = ("stale_buffer", "from_nth_call")
"""Kinds that a first call does not show."""
TRIES = 200
"""Nodes that a kind is tried at."""


@dataclass(frozen=True)
class Plant:
    """A fault at a node, with the copy of the graph that has it."""

    kind: str
    only: str
    node: fx.Node
    output: int
    wrong: fx.GraphModule

    def adapter(self, seen: Seen, backend: Any) -> PlantedFault:
        value = _value(self.node, self.output)
        return PlantedFault(
            backend, self.node.name, self.kind, graph=seen.id, strength=STRENGTHS.get(self.kind), output=self.output,
            only=self.only, above=value.numel() // 2, alignment=value.shape[-1] + 1 if value.dim() else 1,
        )  # fmt: skip


def _value(node: fx.Node, output: int) -> Tensor:
    value = node.meta["val"]
    found: Tensor = value[output] if isinstance(value, (tuple, list)) else value
    return found


def built(name: str, dtype: str) -> tuple[nn.Module, tuple[Any, ...]]:
    if name not in OTHERS:
        return case_of(name, "training", getattr(torch, dtype))
    with mock.patch.dict(MODELS, {name: OTHERS[name]}):
        return case_of(name, "training", getattr(torch, dtype))


def sites(seen: Seen, only: str) -> Iterator[tuple[fx.Node, int]]:
    """Operations whose floating value something reads; of what shows beside a neighbour those that have one."""
    for node in seen.graph.nodes:
        if not computes(node) or not node.users or (only == FUSED and next(neighbours(node), None) is None):
            continue
        several = isinstance(node.meta["val"], (tuple, list))
        for output in {user.args[1] for user in node.users} if several else {0}:
            value = _value(node, output)
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1 and value.dim():
                yield node, output


def around(node: fx.Node) -> set[fx.Node]:
    """A node and the pointwise operations that it could be fused with."""
    return {node, *neighbours(node)}


def drawn(
    seen: Seen, kind: str, only: str, numbers: random.Random, name: str = "", taken: Collection[fx.Node] = ()
) -> Plant | None:
    """A fault at a node that can have it, away from those that are taken; None where there is none."""
    found = [site for site in sites(seen, only) if (not name or site[0].name == name)
             and not around(site[0]).intersection(taken)]  # fmt: skip
    gm = fx.GraphModule(seen.owner, seen.graph)
    fault = FAULTS[kind]
    for node, output in numbers.sample(found, min(len(found), TRIES)):
        try:
            strength = STRENGTHS.get(kind, fault.strength)
            return Plant(kind, only, node, output, with_fault(gm, node.name, fault, strength=strength, output=output))
        except ConfigurationError:
            continue
    return None


def told(culprits: Sequence[Culprit], seen: Seen, plant: Plant, size: Effect) -> str:
    """``named``, ``wider``, ``unseen`` or ``MISSED``."""
    allowed = {plant.node.name}
    if plant.only == FUSED:
        allowed |= {node.name for node in neighbours(plant.node)}
    found = [set(item.place.operations) for item in culprits if plant.node.name in item.place.operations]
    if not found:
        return "unseen" if size.unseen and plant.kind not in LATER else "MISSED"
    return "named" if any(names <= allowed for names in found) else "wider"


class Trial:
    """Plants in the graphs of one model's training step."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.options, self.name = options, name
        self.module, self.args = built(name, options.dtype)
        case = Case.of(self.module, self.args, {}, "training")
        self.first = reference_run(case, PlantedFault(options.backend, "x", "none"))
        with drawn_inputs(case, 1):
            self.second = reference_run(case, PlantedFault(options.backend, "x", "none"))
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        for seen in self.first.seen:
            direction = seen.id.rpartition(".")[2]
            if direction not in self.options.graphs:
                continue
            names = [node.name for node in seen.graph.nodes if node.op == "placeholder"]
            self.effects = Effects(fx.GraphModule(seen.owner, seen.graph), [seen.inputs[name] for name in names])
            for draw in range(self.options.draws):
                self._graph(seen, direction, draw)

    def _graph(self, seen: Seen, direction: str, draw: int) -> None:
        for only in self.options.only:
            plants: list[Plant] = []
            taken = set[fx.Node]()
            for kind in self.options.kinds:
                if kind in BACKWARD and direction == "forward":
                    continue
                numbers = random.Random(zlib.crc32(f"{self.options.seed + draw} {self.name} {seen.id} {kind}".encode()))
                plant = drawn(seen, kind, only, numbers, self.options.node, taken)
                if plant is None:
                    print(f"{self.name} {seen.id} {kind} {only}: no node can have it", flush=True)
                    continue
                plants.append(plant)
                if self.options.together != 1 and kind not in LATER:
                    taken |= around(plant.node)
            now = [plant for plant in plants if plant.kind not in LATER]
            together = self.options.together or len(now)
            random.Random(draw).shuffle(now)
            for start in range(0, len(now), together or 1):
                self._tried(seen, now[start : start + together])
            for plant in plants:
                if plant.kind in LATER:
                    self._tried(seen, [plant])

    def _tried(self, seen: Seen, plants: Sequence[Plant]) -> None:
        """One search."""
        options = self.options
        adapter: Any = options.backend
        for plant in plants:
            adapter = plant.adapter(seen, adapter)
        later = any(plant.kind in LATER for plant in plants)
        kept = copy.copy(self.first)
        kept.seen = [seen]
        runs = iter([kept, kept, self.second])
        began = time.perf_counter()
        config = LocalizeConfig(budget_s=options.budget, call=3 if later else 1)
        with mock.patch.object(engine, "reference_run", lambda *args: next(runs)):
            found = localize(self.module, self.args, backend=adapter, mode="training", config=config).localization
        seconds = time.perf_counter() - began
        for plant in plants:
            several = isinstance(plant.node.meta["val"], (tuple, list))
            size = self.effects.of(plant.wrong, plant.node.name, plant.output if several else None)
            how = told(found.culprits, seen, plant, size)
            self.counts[f"{plant.only} {how}"] += 1
            culprits = ["+".join(item.place.operations[:6]) for item in found.culprits
                        if plant.node.name in item.place.operations]  # fmt: skip
            print(
                f"{self.name} {seen.id} {plant.kind} {plant.only} at {plant.node.name} ({plant.node.target}, output "
                f"{plant.output}): {how} {culprits}; effect {size.node:.3g} floors on the node, {size.outputs:.3g} on "
                f"outputs; {seconds:.1f} s for {len(plants)}", flush=True,
            )  # fmt: skip
        names = {plant.node.name for plant in plants}
        for item in found.culprits:
            if not names & set(item.place.operations):
                self.counts["FALSE"] += 1
                print(
                    f"{self.name} {seen.id} FALSE: {item.kind} {item.place.operations} of {sorted(names)}", flush=True
                )
        if found.missing:
            print(f"{self.name} {seen.id} not looked at: {found.missing[:2]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["bert", "gpt2", "resnet10"], choices=[*MODELS, *OTHERS])
    parser.add_argument("--kinds", nargs="+", default=[kind for kind in FAULTS if kind != "none"], choices=FAULTS)
    parser.add_argument("--only", nargs="+", default=[ALWAYS, FUSED], choices=ONLY)
    parser.add_argument("--graphs", nargs="+", default=["forward", "backward"], choices=["forward", "backward"])
    parser.add_argument("--node", default="", help="at this node, not at a drawn one")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--backend", default="aot_eager", help="that the faults are planted in")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds that one search may take")
    parser.add_argument("--together", type=int, default=1, help="faults of a search; 0: all of a graph")
    parser.add_argument("--draws", type=int, default=1, help="of nodes, each by a seed of its own")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for name in options.models:
        trial = Trial(name, options)
        trial.run()
        counts.update(trial.counts)
    print(dict(counts), f"below {UNSEEN} floors is unseen")


if __name__ == "__main__":
    main()
