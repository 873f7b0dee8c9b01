"""A case run by torch, operation by operation, on the graphs that a backend is given: what each operation receives."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.localize.accounting.links import Ends, ends_of
from inductor_debug.stages.localize.runs.regions import Seen, addresses_of, given_by, lies_in, memory_of_inputs
from inductor_debug.stages.localize.sources import Origin, origins_of_record


class ReferenceRun(AcceleratorAdapter):
    """AOTAutograd's graphs as the adapter would get them, executed by torch; every value is kept.

    Args:
        adapter: whose decompositions are applied; None: none are.

    Attributes:
        seen: each run of a graph, in order.
        origins: graph id → origins of its nodes.
        ends: what the step began and ended with.
        copies: whether values are copied; else they are kept as they are, as long as nothing writes into them.
    """

    name = "reference"

    def __init__(self, adapter: AcceleratorAdapter | None) -> None:
        self.decompositions = None if adapter is None else adapter.decompositions
        self.seen: list[Seen] = []
        self.origins: dict[str, dict[str, Origin]] = {}
        self.ends = Ends()
        self.on = self.copies = False
        self._state: dict[int, int | None] = {}
        self._inputs: set[int] = set()
        self._versions: list[tuple[torch.Tensor, int]] = []

    @property
    def as_traced(self) -> bool:
        return True

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        record = self.record(gm)
        self.origins[record.id] = origins_of_record(record)

        def run(*inputs: Any) -> Any:
            if not self.on:
                return gm.forward(*inputs)
            names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            received = dict(zip(names, inputs, strict=True))
            given = {name: self._kept(value, name in _written(gm.graph)) for name, value in received.items()}
            values = _Values(gm, self._kept)
            result = values.run(*inputs)
            calls = sum(item.id == record.id for item in self.seen)
            addresses = addresses_of(received | given_by(gm.graph, result))
            self.seen.append(Seen(record.id, gm.graph, gm, given, values.found, {}, calls, addresses))
            return result

        return run

    def begin(self, case: Case) -> None:
        """Keep values from here on, of a step of a case that is left as found."""
        self.on, self.seen, self._versions = True, [], []
        self._inputs = memory_of_inputs(case)
        self._state = {tensor.data_ptr(): _version(tensor) for tensor in case.state().values()}

    @property
    def overwritten(self) -> bool:
        """Whether something that was kept as it is holds something else by now."""
        return any(_version(tensor) != version for tensor, version in self._versions)

    def _kept(self, value: Any, written: bool) -> Any:
        """A value, as it is: a copy only where it is known to be written into, and of what the case is given.

        What the case had before, it has again after the step.
        """
        if not isinstance(value, torch.Tensor):
            return value
        value, version = value.detach(), _version(value)
        if written or self.copies or version is None or lies_in(value, self._inputs):
            return value.clone()
        if self._state.get(value.data_ptr()) != version:
            self._versions.append((value, version))
        return value


class _Values(fx.Interpreter):
    """Keeps what each call gives.

    Args:
        kept: how, of a value and whether it is written into.
    """

    def __init__(self, gm: fx.GraphModule, kept: Callable[[Any, bool], Any]) -> None:
        super().__init__(gm)
        self.kept = kept
        self.found: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, int | float | torch.Tensor):
            self.found[n.name] = self.kept(result, n.target is torch.ops.aten.copy_.default)
        return result


def _written(graph: fx.Graph) -> set[str]:
    """Inputs into which a graph copies in the end; operators write nowhere else in AOTAutograd's graphs."""
    return {node.args[0].name for node in graph.nodes if node.target is torch.ops.aten.copy_.default}


def _version(tensor: torch.Tensor) -> int | None:
    """How often a tensor was written into; None where that is not counted."""
    return None if tensor.is_inference() else tensor._version


def reference_run(case: Case, adapter: AcceleratorAdapter | None) -> ReferenceRun:
    """One step of the case, as it stands, through :class:`ReferenceRun`; the case is left as found."""
    reference = ReferenceRun(adapter)
    compiled = compile_case(case, reference)
    reference.begin(case)
    result = case.run(compiled)
    if reference.overwritten:  # by code outside of the graphs
        reference.copies = True
        reference.begin(case)
        result = case.run(compiled)
    reference.ends = ends_of(case, result)
    return reference
