"""How the values of a step go from one graph to the next.

A model of which the graph breaks, or whose parts are called more than once, runs several graphs. What a graph receives,
and what the step gives, is found among what the step began with and what earlier graphs gave: it is what holds the same
bits. Code between graphs that computes is so noticed: nothing holds what it gives.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case, StepResult
from inductor_debug.models.contents import same_bits
from inductor_debug.models.loss import training_loss
from inductor_debug.models.nested import map_tensors, named_tensors
from inductor_debug.stages.localize.judging.evaluation import is_floating
from inductor_debug.stages.localize.runs.kept import read
from inductor_debug.stages.localize.runs.regions import Seen, lies_in, memory_of_inputs
from inductor_debug.stages.sides.running import STATE, Leaves, collect

SUMS = "gradients"
"""The graph id of what autograd adds up between backward graphs."""

Place = tuple[int, fx.Node]
"""Number of a pass, and a node of its graph."""


@dataclass
class Ends:
    """What a step begins and ends with.

    Attributes:
        given: what it had before: parameters, buffers and inputs, by name.
        outputs: what it gave: outputs, and what it wrote into, by path.
        begun: output → the gradient of the loss for it.
        gradients: what it gave for others.
    """

    given: Mapping[str, torch.Tensor] = field(default_factory=dict)
    outputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    begun: Mapping[str, torch.Tensor] = field(default_factory=dict)
    gradients: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, leaves: Leaves) -> "Ends":
        """What a step gave, of that which has an error."""
        outputs = {path: leaf for kind in ("output", *STATE) for path, leaf in leaves.get(kind, {}).items()
                   if is_floating(leaf)}  # fmt: skip
        gradients = {path: leaf for path, leaf in leaves.get("gradient", {}).items() if is_floating(leaf)}
        return cls(outputs=outputs, gradients=gradients)


def ends_of(case: Case, result: StepResult) -> Ends:
    """Of a step of a case, which was left as found."""
    outputs = Ends.of(collect(result)).outputs
    memory = memory_of_inputs(case)
    given = {" ".join(key): tensor.detach().clone() if lies_in(tensor, memory) else tensor.detach()
             for key, tensor in case.state().items()}  # fmt: skip
    return Ends(given, outputs, _of_loss(case, result, outputs), result.gradients)


def _of_loss(case: Case, result: StepResult, outputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The gradient of the loss for each output: of a loss that is linear in them, whatever their errors."""
    if result.loss is None:
        return {}
    asking = map_tensors(lambda item: item.detach().requires_grad_(is_floating(item)), result.output)
    tensors = [tensor for _, tensor in named_tensors(asking, "output", objects=False)]
    with torch.enable_grad():
        loss = training_loss(asking if result.own_loss else tensors, case.projections)
        floating = [tensor for tensor in tensors if is_floating(tensor)]
        found = torch.autograd.grad(loss, floating, allow_unused=True)
    gradients = {id(tensor): gradient for tensor, gradient in zip(floating, found, strict=True)}
    return {
        path: gradient
        for path, leaf in outputs.items()
        for tensor in floating
        if (gradient := gradients[id(tensor)]) is not None
        if tensor.shape == leaf.shape and same_bits(tensor, leaf)
    }


class Ledger:
    """Values and where they are from, found by their bits."""

    def __init__(self) -> None:
        self._known: dict[Any, list[tuple[Any, Place | None, int | None]]] = {}

    def add(self, value: Any, place: Place | None, address: int | None = None, held: Any = None) -> None:
        """Note a value.

        Args:
            value: others than tensors are left out.
            place: None: the step began with it.
            address: where in memory it lay, if that is known.
            held: what stands for the value in a store, if it is in one.
        """
        if isinstance(value, torch.Tensor):
            held = value.detach() if held is None else held
            self._known.setdefault(_key(value), []).append((held, place, address))

    def places(self, value: torch.Tensor, address: int | None = None) -> list[Place | None]:
        """Where the same bits are, in the order in which they were noted; of whatever shape.

        Where some of these lay at the very address, only those.
        """
        flat = value.detach().reshape(-1)
        same = [(place, lay) for held, place, lay in self._known.get(_key(value), [])
                if same_bits(read(held).reshape(-1), flat)]  # fmt: skip
        there = [place for place, lay in same if lay == address and address is not None]
        return there or [place for place, _ in same]


def _key(value: torch.Tensor) -> Any:
    """What equal values have in common: a few of their elements among it."""
    flat = value.detach().reshape(-1)
    some = flat[:: max(1, flat.numel() // 16)].contiguous()
    return value.dtype, flat.numel(), some.view(torch.uint8).cpu().numpy().tobytes()


def summed(before: torch.Tensor, further: torch.Tensor, number: int) -> Seen:
    """A run of what autograd does where a value has a further gradient.

    Args:
        before: the sum so far.
        further: in another shape, perhaps.
        number: of the sum.
    """
    graph = fx.Graph()
    nodes = graph.placeholder("before"), graph.placeholder("further")
    total = graph.create_node("call_function", torch.ops.aten.add.Tensor, nodes, name=f"sum_{number}")
    graph.output((total,))
    further = further.reshape(before.shape)
    inputs = {"before": before, "further": further}
    return Seen(SUMS, graph, torch.nn.Module(), inputs, {total.name: before + further})
