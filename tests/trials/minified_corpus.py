"""The corpus of failures: what is planted where, as ``minified_corpus.csv`` says it.

The first columns of the file are chosen, so that each class has every model, both modes, full size and symbolic sizes.
``python tests/trials/minified_corpus.py`` draws the others anew by a seed, from the graphs that torch makes: the
operation that fails, in which graph, and the limit of a profile. It writes the file; a run of the corpus only reads it.
Where only the sizes of two models differ, the graphs of the small one are drawn from.
"""

import argparse
import csv
import itertools
import random
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import minified_faults as planted
import minified_models as models
import minified_violations as violations
import torch
from inductor_faults import REAL
from minify_backends import is_misaligned, sources
from torch import fx

from inductor_debug.stages.localize.runs.regions import Seen, computes

FILE = Path(__file__).with_suffix(".csv")

HANGS_S = {"small": 8.0, "full": 30.0, "deep": 30.0}
"""Size → seconds after which a program is taken to hang, where that is what was planted."""

LIMIT_S = 120.0
"""Seconds after which any other program is."""


@dataclass(frozen=True)
class Kind:
    """A kind of failure.

    Attributes:
        of: its class: ``violation``, ``error``, ``crash``, ``hang``, ``defect``, ``storm``.
        shows: how the text of the failure begins.
        fault: of the backend that has it; empty where none of ``minified_faults`` has.
    """

    of: str
    shows: tuple[str, ...]
    fault: str = ""


KINDS = {
    **{name: Kind("violation", (f"violation:{rule}",)) for name, rule in violations.RULES.items()},
    "refusal": Kind("error", ("error NotImplementedError",), "refusal"),
    "joined": Kind("error", ("error NotImplementedError",), "refusal"),
    "misaligned": Kind("error", ("error ValueError",), "misaligned"),
    "compile_error": Kind("error", ("error",)),
    "abort": Kind("crash", ("signal 6",), "abort"),
    "segfault": Kind("crash", ("signal 11",), "segfault"),
    "hang": Kind("hang", ("hang",), "hang"),
    "wrong": Kind("defect", ("defect",), "wrong"),
    "fused": Kind("defect", ("defect",), "wrong"),
    "accuracy": Kind("defect", ("defect",)),
    "real": Kind("defect", ("defect",)),
    "counter": Kind("storm", ("storm",)),
    "number": Kind("storm", ("storm",)),
    "word": Kind("storm", ("storm",)),
    "length": Kind("storm", ("storm",)),
}
"""``joined`` and ``fused``: where one operation takes what another gives. ``compile_error`` and ``accuracy``:
TorchInductor's own injected bugs of a ReLU. ``real``: torch's own miscompilations, on the CPU alone."""

BUGS = ("compile_error", "accuracy")
UNLIKE = ("_scaled_dot_product", "batch_norm", "mkldnn", "cudnn")
"""Parts of the names of operations that torch has for one kind of device alone."""


@dataclass(frozen=True)
class Plant:
    """A failure, and where it is planted.

    Attributes:
        kind: of :data:`KINDS`.
        model, size: of ``minified_models``; of ``real`` the name of torch's miscompilation.
        mode: ``inference`` or ``training``.
        dynamic: ``dynamic`` or ``static``: whether sizes are symbols.
        graph: ``forward`` or ``backward``.
        targets: of the operation at fault, after the one that it follows if that counts; of storms the module.
        value: a limit of a profile.
    """

    kind: str
    model: str
    size: str
    mode: str
    dynamic: str
    graph: str = ""
    targets: str = ""
    value: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.model} {self.size} {self.mode} {self.dynamic}"

    @property
    def of(self) -> str:
        return KINDS[self.kind].of

    @property
    def symbolic(self) -> bool:
        return self.dynamic == "dynamic"

    @property
    def limit_s(self) -> float:
        return HANGS_S[self.size] if self.kind == "hang" else LIMIT_S

    def is_alike(self, failure: str) -> bool:
        """Whether a failure is of the class that was planted."""
        return failure.startswith(KINDS[self.kind].shows)

    def built(self, device: str) -> models.Built:
        if self.kind == "real":
            module, x = (make() for make in REAL[self.model])
            return models.Built(module, (x.to(device),), {}, self.mode)
        return models.built(self.model, self.size, self.mode, self.symbolic, device)

    @cached_property
    def names(self) -> list[str]:
        return self.targets.split(" > ")

    def backend(self) -> Any:
        fault = KINDS[self.kind].fault
        return planted.backend(fault, *reversed(self.names)) if fault else "inductor"

    def options(self, device: str) -> dict[str, Any]:
        """TorchInductor's."""
        language = "triton" if device == "cuda" else "cpp"
        return {language: {"inject_relu_bug_TESTING_ONLY": self.kind}} if self.kind in BUGS else {}

    def nodes(self, seen: Iterable[Seen]) -> tuple[str, list[str]] | None:
        """Where the fault is: the graph's id, and names of the first nodes that have it; None where none has."""
        for each in seen:
            for node in each.graph.nodes:
                if each.id.endswith(self.graph) and str(node.target) == self.names[-1]:
                    before = [item for item in sources(node) if str(item.target) == self.names[0]]
                    if len(self.names) == 1 or before:
                        return each.id, [item.name for item in before[:1] if len(self.names) > 1] + [node.name]
        return None


def read() -> list[Plant]:
    """The corpus."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return [Plant(**row) for row in csv.DictReader(file)]


def write(plants: Iterable[Plant]) -> None:
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Plant)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(plant) for plant in plants)


def is_drawn(plant: Plant) -> bool:
    """Whether its operation is drawn."""
    return not (plant.of == "storm" or plant.kind == "real" or plant.kind in BUGS)


def drawn(plant: Plant, seen: Iterable[Seen], seed: int) -> Plant:
    """The plant at an operation of its graphs that can have it.

    Raises:
        LookupError: none can.
    """
    numbers = random.Random(zlib.crc32(f"{seed} {plant.name}".encode()))
    sites = [(each, node) for each in seen for node in each.graph.nodes if _can_have(node, plant)]
    targets = sorted({str(node.target) for _, node in sites})  # each as likely, however often it is called
    if not targets:
        raise LookupError(f"no operation of {plant.name} can have the fault")
    target = numbers.choice(targets)
    each, node = numbers.choice([site for site in sites if str(site[1].target) == target])
    names = [target]
    if plant.kind in ("fused", "joined"):
        names.insert(0, str(numbers.choice(list(_befores(node))).target))
    value = violations.limit(plant.kind, node) if plant.of == "violation" else ""
    return replace(plant, graph=each.id.rpartition(".")[2], targets=" > ".join(names), value=value)


def _can_have(node: fx.Node, plant: Plant) -> bool:
    if not computes(node) or not _is_anywhere(node) or not isinstance(node.meta["val"], (torch.Tensor, tuple, list)):
        return False
    if plant.of == "violation":
        return violations.can_have(plant.kind, node)
    if plant.kind == "misaligned":
        return is_misaligned(node)
    if plant.kind in ("fused", "joined") and next(_befores(node), None) is None:
        return False
    value = node.meta["val"]
    value = value[0] if isinstance(value, (tuple, list)) else value
    right = isinstance(value, torch.Tensor) and value.is_floating_point() and len(node.users) > 0
    return right or plant.of != "defect"


def _befores(node: fx.Node) -> Iterator[fx.Node]:
    return (item for item in sources(node) if item.op == "call_function" and computes(item) and _is_anywhere(item))


def _is_anywhere(node: fx.Node) -> bool:
    is_aten = isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten"
    return is_aten and not any(part in str(node.target) for part in UNLIKE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="REGEX", help="failures whose names have this")
    options = parser.parse_args()
    plants = {plant.name: plant for plant in read()}
    wanted = [plant for plant in plants.values() if is_drawn(plant) and re.search(options.only, plant.name)]

    def model(plant: Plant) -> tuple[str, str, str, bool]:
        own = plant.model == "gpt2" or plant.of == "violation"
        return plant.model, plant.size if own else "small", plant.mode, plant.symbolic

    for key, group in itertools.groupby(sorted(wanted, key=model), key=model):
        together = list(group)
        seen = models.graphs(models.built(*key, "cpu"), together[0].symbolic)
        for plant in together:
            plants[plant.name] = drawn(plant, seen, options.seed)
            print(plants[plant.name], flush=True)
        write(plants.values())


if __name__ == "__main__":
    main()
