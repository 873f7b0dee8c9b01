"""A backend that executes AOTAutograd's graphs operation by operation, one node of one of them with a fault.

For ``backend._target_=blind_backend.Planted`` with this folder on the path. The kind ``none``
plants nothing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import blind_kinds  # noqa: F401 - registers the kinds
import torch
from blind_calls import KINDS, Call, is_backward
from torch import Tensor, fx

from inductor_debug import AcceleratorAdapter


@dataclass(frozen=True)
class Plant:
    """Where a fault is, and how large.

    Args:
        kind: One of :data:`blind_calls.KINDS`, or ``none``.
        half: ``forward`` or ``backward``.
        site: Its number among the nodes of that graph that the kind fits.
        form: ``all`` of the node's value is wrong, or a ``blend`` of right and wrong stands everywhere or in a
            ``single`` element, or some of its ``elements`` are wrong.
        dose: The share of the wrong value in the blend, or of the wrong elements; at least one is wrong.
        seed: Draws which elements, and what the kind itself draws.
        every: The n of kinds that act in the n-th call.
    """

    kind: str = "none"
    half: str = "forward"
    site: int = 0
    form: str = "all"
    dose: float = 1.0
    seed: int = 0
    every: int = 2

    def node(self, graph: fx.Graph) -> fx.Node | None:
        """The node that is faulty in this graph."""
        nodes = sites(graph, self.kind)
        return nodes[self.site] if half(graph) == self.half and self.site < len(nodes) else None

    def dosed(self, right: Any, wrong: Any) -> Any:
        """Some of ``wrong`` in ``right``."""
        if isinstance(right, (tuple, list)):
            return type(right)(self.dosed(a, b) for a, b in zip(right, wrong, strict=True))
        if not isinstance(right, Tensor) or not right.is_floating_point() or self.form == "all":
            return wrong
        a, b = right.double(), wrong.double()
        mixed = torch.where(a == b, a, a + self.dose * (b - a)).to(right.dtype)
        if self.form == "blend":
            return mixed
        score = torch.rand(right.shape, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64)
        score = torch.where(right == wrong, 2.0, score)
        least = min(1.0, float(score.min()) + 1e-12)
        if self.form == "single":
            return torch.where(score < least, mixed, right)
        return torch.where(score < max(self.dose, least), wrong.to(right.dtype), right)


def half(graph: fx.Graph) -> str:
    return "backward" if is_backward(next(iter(graph.nodes))) else "forward"


def sites(graph: fx.Graph, kind: str) -> list[fx.Node]:
    """The nodes that a kind fits, in order; what nothing reads is left out."""
    if kind not in KINDS:
        return []
    return [n for n in graph.nodes if n.op == "call_function" and n.users and KINDS[kind].fits(n)]


class Faulty(fx.Interpreter):
    """Executes a graph with a fault in it."""

    def __init__(self, gm: fx.GraphModule, plant: Plant) -> None:
        super().__init__(gm)
        self.plant, self.faulty = plant, plant.node(gm.graph)
        self.calls, self.kept = 0, {}  # type: int, dict[str, Any]

    def run_node(self, n: fx.Node) -> Any:
        right = super().run_node(n)
        if n is not self.faulty:
            return right
        self.calls += 1
        plant = self.plant
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        if plant.kind == "alias_clobber":
            source = n.args[0]
            assert isinstance(source, fx.Node)
            self.env[source] = plant.dosed(self.env[source], right.to(self.env[source].dtype))
            return right
        call = Call(n, args, kwargs, right, self.calls, plant.every, plant.seed, self.kept)
        return plant.dosed(right, KINDS[plant.kind].wrong(call))


class Planted(AcceleratorAdapter):
    """The backend; ``log`` is a file that gets a line for each graph."""

    name = "planted"

    def __init__(self, log: str = "", **options: Any) -> None:
        self.plant, self.log = Plant(**options), log

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        program = Faulty(gm, self.plant)
        if self.log:
            line = {"half": half(gm.graph), "nodes": len(gm.graph.nodes), "site": str(program.faulty)}
            with Path(self.log).open("a") as file:
                file.write(json.dumps(line) + "\n")
        return program.run
