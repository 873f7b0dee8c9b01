"""Dynamo's graphs of a case, as programs of torch's own functions, with what each of them gives.

Here a backend's own failures show that takes graphs as Dynamo makes them, and AOTAutograd's. In training their programs
take gradients too, so that forward and backward are one (the joint graph).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.front import Level, record_of
from inductor_debug.stages.localize.sources import Origin, origins_of_record


@dataclass
class DynamoGraph:
    """One run of one of Dynamo's graphs.

    Attributes:
        id: ``g0``, ``g1``, … in the order of compilation.
        graph: its nodes have fake values in ``meta["val"]``.
        owner: what holds its constants.
        inputs: placeholder → what it was given, before the graph wrote into it.
        call: how many-th run of the graph.
        training: whether gradients were on.
        origins: node → where it is from.
    """

    id: str
    graph: fx.Graph
    owner: fx.GraphModule
    inputs: Mapping[str, Any]
    call: int
    training: bool
    origins: Mapping[str, Origin]

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Node → what it gave, as the graph runs by torch now: before others wrote into it."""
        run = _Values(self.owner)
        with torch.set_grad_enabled(self.training):
            run.run(*[_as_given(value) for value in self.inputs.values()])
        return run.found


class _Values(fx.Interpreter):
    """Keeps what each call gives."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm)
        self.found: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op in ("call_function", "call_method") and isinstance(result, int | float | torch.Tensor):
            self.found[n.name] = _as_given(result)
        return result


def _as_given(value: Any) -> Any:
    """A value as something of its own; a tensor asks for a gradient if it did."""
    if not isinstance(value, torch.Tensor):
        return value
    copied = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return copied.copy_(value.detach()).requires_grad_(value.requires_grad)


class _Recording(AcceleratorAdapter):
    """Has torch run Dynamo's graphs, and keeps what each is given."""

    name = "recording"
    level: Level = "dynamo"

    def __init__(self) -> None:
        self.seen: list[DynamoGraph] = []

    @property
    def as_traced(self) -> bool:
        return True

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        record = record_of(gm)
        origins = origins_of_record(record)
        for node in gm.graph.nodes:
            node.meta.setdefault("val", node.meta.get("example_value"))
        names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]

        def run(*inputs: Any) -> Any:
            calls = sum(item.id == record.id for item in self.seen)
            if not calls:  # what one run is given will do
                given = {name: _as_given(value) for name, value in zip(names, inputs, strict=True)}
                self.seen.append(DynamoGraph(record.id, gm.graph, gm, given, calls, torch.is_grad_enabled(), origins))
            return gm.forward(*inputs)

        return run


def dynamo_graphs(case: Case) -> list[DynamoGraph]:
    """The graphs of one step of a case, which is left as found."""
    recording = _Recording()
    case.run(compile_case(case, recording))
    return recording.seen
