"""A case run by torch, operation by operation, on the graphs that a backend is given: what each operation receives."""

from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.localize.accounting.links import Ends, ends_of
from inductor_debug.stages.localize.runs.kept import Kept, Standing, Store
from inductor_debug.stages.localize.runs.regions import Seen, addresses_of, given_by, is_view
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
        self._standing: Container[object] = ()
        self._store = Store()

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
            written, kept = _written(gm.graph), Kept[str](self._store)
            for name, value in received.items():
                kept.keep(name, value, () if name in written else self._standing)
            values = _Values(gm, Kept(self._store))
            result = values.run(*inputs)
            calls = sum(item.id == record.id for item in self.seen)
            addresses = addresses_of(received | given_by(gm.graph, result))
            self.seen.append(Seen(record.id, gm.graph, gm, kept, values.found, {}, calls, addresses))
            return result

        return run

    def begin(self, case: Case) -> None:
        """Keep values from here on, of a step of a case that is left as found."""
        self.on, self.seen, self._standing = True, [], Standing(case)


class _Values(fx.Interpreter):
    """Keeps what each call gives; of a view of such a value, how it looks at that."""

    def __init__(self, gm: fx.GraphModule, found: Kept[str]) -> None:
        super().__init__(gm)
        self.found = found

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, int | float | torch.Tensor):
            source = n.args[0] if is_view(n) else None
            if isinstance(source, fx.Node) and isinstance(result, torch.Tensor) and source.name in self.found:
                self.found.look(n.name, result, source.name, self.env[source])
            else:
                self.found[n.name] = result
        return result


def _written(graph: fx.Graph) -> set[str]:
    """Inputs into which a graph copies in the end; operators write nowhere else in AOTAutograd's graphs."""
    return {node.args[0].name for node in graph.nodes if node.target is torch.ops.aten.copy_.default}


def reference_run(case: Case, adapter: AcceleratorAdapter | None) -> ReferenceRun:
    """One step of the case, as it stands, through :class:`ReferenceRun`; the case is left as found."""
    reference = ReferenceRun(adapter)
    compiled = compile_case(case, reference)
    reference.begin(case)
    result = case.run(compiled)
    reference.ends = ends_of(case, result)
    return reference
