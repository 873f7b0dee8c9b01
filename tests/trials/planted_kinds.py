"""Each kind of fault planted around an adapter, at a node drawn by seed: is that node named?

Usage: ``python tests/trials/planted_kinds.py [--models bert gpt2 resnet10] [--seed 0] [--kinds scale …]
[--only always fused above unaligned] [--graphs forward backward] [--node NAME] [--dtype float32]
[--backend aot_eager]``. ``bert_masked`` has a
padding mask; ``bert_full``, ``resnet18_full`` and ``ssm_full`` have the sizes of ``conf/model``.

Each fault goes to ``localize(module, args, backend=PlantedFault(…))``. A training step of each model is run by torch
once, operation by operation. All its plants are held against that run, of which localization looks at the graph with
the plant. A line says what was planted, its effect in floors on the node and on the graph's outputs, as
``planted_effect.py`` measures it in one call, and what was named:

- ``named``: the very node and nothing else; of ``only=fused`` a region of it and its neighbours;
- ``wider``: a region that has the node, and more;
- ``otherwise``: something else;
- ``unseen``: nothing, and the effect is below 4 floors in both places;
- ``MISSED``: nothing, though the effect is larger.
"""

import argparse
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from localized_faults import MODELS, case_of
from planted_effect import UNSEEN, Effect, effect
from torch import Tensor, fx, nn
from torchvision.models.resnet import BasicBlock, ResNet

from inductor_debug import ConfigurationError, localize
from inductor_debug.models import bert, ssm, torchvision_models
from inductor_debug.models.case import Case
from inductor_debug.stages.backends.faults.conditions import ALWAYS, FUSED, ONLY, neighbours
from inductor_debug.stages.backends.faults.kinds import FAULTS
from inductor_debug.stages.backends.faults.rewriting import with_fault
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.localize import engine
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.localize.engine import Localized
from inductor_debug.stages.localize.in_place import ReferenceRun, reference_run
from inductor_debug.stages.localize.regions import Seen, computes


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
STRENGTHS = {"scale": 1e-3, "dropped_tail": 16}
"""Of the kinds whose own strength is another."""
BACKWARD = ("gradient_sign", "missing_accumulation")
"""Kinds of the backward alone."""
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

    def adapter(self, seen: Seen, backend: str) -> PlantedFault:
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


def drawn(seen: Seen, kind: str, only: str, numbers: random.Random, name: str = "") -> Plant | None:
    """A fault at a node that can have it; None where there is none."""
    found = [site for site in sites(seen, only) if not name or site[0].name == name]
    gm = fx.GraphModule(seen.owner, seen.graph)
    fault = FAULTS[kind]
    for node, output in numbers.sample(found, min(len(found), TRIES)):
        try:
            strength = STRENGTHS.get(kind, fault.strength)
            return Plant(kind, only, node, output, with_fault(gm, node.name, fault, strength=strength, output=output))
        except ConfigurationError:
            continue
    return None


def measured(seen: Seen, plant: Plant) -> Effect:
    names = [node.name for node in seen.graph.nodes if node.op == "placeholder"]
    several = isinstance(plant.node.meta["val"], (tuple, list))
    gm = fx.GraphModule(seen.owner, seen.graph)
    inputs = [seen.inputs[name] for name in names]
    return effect(gm, plant.wrong, inputs, plant.node.name, plant.output if several else None)


def told(found: Localized, seen: Seen, plant: Plant, size: Effect) -> str:
    """``named``, ``wider``, ``otherwise``, ``unseen`` or ``MISSED``."""
    culprits = found.localization.culprits
    if not culprits:
        return "unseen" if size.unseen else "MISSED"
    names = {name for culprit in culprits for name in culprit.place.operations}
    graphs = {culprit.place.graph for culprit in culprits}
    allowed = {plant.node.name}
    if plant.only == FUSED:
        allowed |= {node.name for node in neighbours(plant.node)}
    if plant.node.name not in names or graphs != {seen.id}:
        return "otherwise"
    return "named" if names <= allowed else "wider" if len(culprits) == 1 else "otherwise"


def tried(
    module: nn.Module, args: Sequence[Any], reference: ReferenceRun, seen: Seen, plant: Plant, options: Any
) -> tuple[str, str]:
    """How a plant was named, and the words for it."""
    size = measured(seen, plant)
    kept = mock.Mock(spec_set=["seen", "origins"], seen=[seen], origins=reference.origins)
    began = time.perf_counter()
    with mock.patch.object(engine, "reference_run", lambda *args: kept):
        found = localize(
            module, args, backend=plant.adapter(seen, options.backend), mode="training",
            config=LocalizeConfig(budget_s=options.budget),
        )  # fmt: skip
    how = told(found, seen, plant, size)
    culprits = [f"{item.kind} {'+'.join(item.place.operations[:6])}" for item in found.localization.culprits[:4]]
    missing = f", not looked at: {found.localization.missing[:2]}" if found.localization.missing else ""
    return how, (
        f"{how}: {found.localization.kind} {culprits}{missing}; effect {size.node:.3g} floors on the node, "
        f"{size.outputs:.3g} on outputs; {time.perf_counter() - began:.1f} s"
    )


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
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for name in options.models:
        module, args = built(name, options.dtype)
        case = Case.of(module, args, {}, "training")
        reference = reference_run(case, PlantedFault(options.backend, "x", "none"))
        for seen in reference.seen:
            direction = seen.id.rpartition(".")[2]
            for kind in options.kinds if direction in options.graphs else []:
                if kind in BACKWARD and direction == "forward":
                    continue
                for only in options.only:
                    key = f"{options.seed} {name} {seen.id} {kind} {only}"  # so that one alone is drawn as among others
                    numbers = random.Random(zlib.crc32(key.encode()))
                    plant = drawn(seen, kind, only, numbers, options.node)
                    if plant is None:
                        print(f"{name} {seen.id} {kind} {only}: no node can have it", flush=True)
                        continue
                    how, words = tried(module, args, reference, seen, plant, options)
                    counts[how] += 1
                    target = f"{plant.node.name} ({plant.node.target}, output {plant.output})"
                    print(f"{name} {seen.id} {kind} {only} at {target}: {words}", flush=True)
    print(dict(counts), f"below {UNSEEN} floors is unseen")


if __name__ == "__main__":
    main()
