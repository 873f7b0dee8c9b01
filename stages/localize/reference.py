"""A case run by torch, operation by operation, on the graphs that a backend is given: what each operation receives."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.localize.links import Ends, ends_of
from inductor_debug.stages.localize.regions import Seen, addresses_of, computes
from inductor_debug.stages.localize.sources import Origin, origins_of_record


class ReferenceRun(AcceleratorAdapter):
    """AOTAutograd's graphs as the adapter would get them, executed by torch; every value is kept.

    Args:
        adapter: whose decompositions are applied; None: none are.

    Attributes:
        seen: each run of a graph, in order.
        origins: graph id → origins of its nodes.
        ends: what the step began and ended with.
    """

    name = "reference"

    def __init__(self, adapter: AcceleratorAdapter | None) -> None:
        self.decompositions = None if adapter is None else adapter.decompositions
        self.seen: list[Seen] = []
        self.origins: dict[str, dict[str, Origin]] = {}
        self.ends = Ends()
        self.on = False

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
            given = {name: value.clone() if isinstance(value, torch.Tensor) else value
                     for name, value in zip(names, inputs, strict=True)}  # fmt: skip
            values = _Values(gm, given)
            result = values.run(*inputs)
            calls = sum(item.id == record.id for item in self.seen)
            addresses = addresses_of(dict(zip(names, inputs, strict=True)))
            self.seen.append(Seen(record.id, gm.graph, gm, given, values.found, {}, calls, addresses))
            return result

        return run


class _Values(fx.Interpreter):
    """Keeps a copy of what each call gives; a view looks at the copy of what it is a view of.

    Args:
        given: copies of what the graph was given, by placeholder.
    """

    def __init__(self, gm: fx.GraphModule, given: Mapping[str, Any]) -> None:
        super().__init__(gm)
        self.given = given
        self.found: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, int | float):
            self.found[n.name] = result  # a size that others take
        elif n.op == "call_function" and isinstance(result, torch.Tensor):
            view = None if computes(n) else self._view(n, result)
            self.found[n.name] = result.detach().clone() if view is None else view
        return result

    def _view(self, node: fx.Node, result: torch.Tensor) -> torch.Tensor | None:
        """The same view of the copy; None where its source has none, or one of other strides."""
        (source, *others) = node.all_input_nodes
        kept = self.found.get(source.name, self.given.get(source.name))
        if others or not isinstance(kept, torch.Tensor) or kept.stride() != self.env[source].stride():
            return None
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda taken: kept)
        view = node.target(*args, **kwargs)  # type: ignore[operator]
        return view if isinstance(view, torch.Tensor) and view.stride() == result.stride() else None


def reference_run(case: Case, adapter: AcceleratorAdapter | None) -> ReferenceRun:
    """One step of the case, as it stands, through :class:`ReferenceRun`; the case is left as found."""
    reference = ReferenceRun(adapter)
    compiled = compile_case(case, reference)
    reference.on = True
    reference.ends = ends_of(case, case.run(compiled))
    return reference
