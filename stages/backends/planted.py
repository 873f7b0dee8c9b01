"""Faults planted in a backend on purpose, so that what is found can be held against what was planted.

    backend.adapter=inductor_debug.stages.backends.planted.PlantedFault +backend.options.inner=inductor
    +backend.options.node=mm_1 +backend.options.fault=scale

The graph is AOTAutograd's, partitioned and named as the capture stage shows it. The fault is put behind the node, as
operations of the graph or as an operator of its own. The inner adapter compiles the result: its own code commits the
fault. An adapter with decompositions gets them applied first; any other gets each node as it was.
"""

import functools
import itertools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.execution import Executor
from inductor_debug.stages.backends.faults.conditions import ALWAYS, Condition
from inductor_debug.stages.backends.faults.kinds import FAULTS
from inductor_debug.stages.backends.faults.rewriting import make_values_known, traced, with_fault
from inductor_debug.stages.backends.faults.site import valid_strength
from inductor_debug.stages.backends.front import graph_of, mark
from inductor_debug.stages.backends.given import GivenBackend, adapter_of
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.violations import Violations
from inductor_debug.stages.settings import BackendConfig

log = logging.getLogger(__name__)

NEAREST = 8
"""Node names that a message offers."""


class PlantedFault(AcceleratorAdapter):
    """Another adapter, wrong at one node of one graph.

    Args:
        inner: the adapter, its name, its dotted path, or a callable for ``torch.compile``. One that takes Dynamo's
            graphs is given AOTAutograd's.
        node: name of the node in the captured AOT graph; it must be an operation.
        graph: ``g0.forward``, ``g0.backward``, ``g1.forward``, …
        fault: one of :data:`FAULTS`.
        strength: see :data:`FAULTS`; the fault's own by default.
        output: which output of an operation that has several.
        only: when the fault shows, one of :data:`.conditions.ONLY`.
        above: elements above which it does, of ``only="above"``.
        alignment: of ``only="unaligned"``; the profile's by default.
        options, inductor: the inner adapter's ``backend.options`` and ``backend.inductor``, where it is named.
        accel: the profile for it, where it is named.

    Attributes:
        planted: True once the graph with the fault has been compiled; False where the fault does not show in it.
        graphs: ids of the graphs compiled since :meth:`dynamo_backend`.

    Raises:
        ConfigurationError: When built: the fault, graph id, strength or inner adapter does not exist. When the compiled
            graph first runs: it does not have the node, or the node can't have the fault. From
            :meth:`validate_compiled`: the graph was never compiled.
    """

    def __init__(
        self,
        inner: str | AcceleratorAdapter | GivenBackend,
        node: str,
        fault: str,
        graph: str = "g0.forward",
        strength: float | None = None,
        output: int = 0,
        options: Mapping[str, Any] | None = None,
        inductor: Mapping[str, Any] | None = None,
        accel: AccelConfig | None = None,
        only: str = ALWAYS,
        above: int = 1024,
        alignment: int | None = None,
    ) -> None:
        if fault not in FAULTS:
            raise invalid_choice("backend.options.fault", fault, FAULTS)
        if not re.fullmatch(r"g\d+\.(forward|backward)", str(graph)):
            raise ConfigurationError(
                f"backend.options.graph: got {graph!r}; valid: gN.forward or gN.backward.\n"
                "Try: backend.options.graph=g0.forward"
            )
        self.fault, self.graph, self.node, self.output = FAULTS[fault], graph, node, output
        self.strength = valid_strength(fault, self.fault, strength)
        declared = accel.alignment if accel is not None else None
        self.condition = Condition(only, above, declared if alignment is None else alignment)
        self.inner = (
            build_adapter(BackendConfig(inner, inner, dict(options or {}), dict(inductor or {})), accel)
            if isinstance(inner, str)
            else adapter_of(inner)
        )
        self.name = f"{self.inner.name} with {fault} at {graph}:{node}"
        if only != ALWAYS:
            self.name += f", only={only}"
        self.planted = False
        self.graphs: list[str] = []

    def capabilities(self) -> Profile:
        return self.inner.capabilities()

    def check(self, graph: GraphRecord) -> Violations:
        return self.inner.check(graph)

    def own_check(self) -> Callable[[GraphRecord], Violations] | None:
        return self.inner.own_check()

    @property
    def executor(self) -> Executor:
        return self.inner.executor

    def storage_rounding(self) -> AcceleratorAdapter | None:
        return self.inner.storage_rounding()

    def validate(self) -> None:
        self.inner.validate()

    def validate_compiled(self) -> None:
        if self.graph in self.graphs:
            return
        raise invalid_choice("backend.options.graph", self.graph, self.graphs)

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """Compile a graph, or a part of one: the fault is planted where that has the operation.

        A node that says which graph it is from has to be from the right one; any other is told by its name.
        """
        known = [graph_of(node) for node in gm.graph.nodes if node.name == self.node and node.op == "call_function"]
        return self._compile(gm, example_inputs, plant=bool(known) and known[0] in (self.graph, None))

    def dynamo_backend(self) -> Callable[..., Any]:
        from inductor_debug.stages.torch_internals.backends import aot_backend
        from inductor_debug.stages.torch_internals.dynamo import current_compile_key

        numbers: dict[Any, int] = {}
        fresh = itertools.count()
        self.planted, self.graphs = False, []

        def backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            key = current_compile_key() or object()
            number = numbers[key] if key in numbers else numbers.setdefault(key, next(fresh))

            def compiler(direction: str) -> Callable[..., Any]:
                return lambda graph, inputs: self._compile_graph(f"g{number}.{direction}", graph, inputs)

            compile_aot = aot_backend(
                forward=compiler("forward"),
                backward=compiler("backward"),
                inference=compiler("forward"),
                recompute=False,
            )
            compiled: Callable[..., Any] = compile_aot(gm, example_inputs)
            return compiled

        return backend

    def _compile_graph(
        self, graph_id: str, gm: fx.GraphModule, inputs: Sequence[Tensor]
    ) -> Callable[..., Sequence[Tensor]]:
        """A user's mistake is raised by the first run: Dynamo would wrap what is raised while it compiles."""
        if graph_id not in self.graphs:
            self.graphs.append(graph_id)
        plant = graph_id == self.graph
        mark(gm, graph_id)
        try:
            if plant and self.node not in _operations(gm):
                raise _no_such_node(self.node, graph_id, _operations(gm))
            compiled = self._compile(gm, inputs, plant=plant)
        except ConfigurationError as error:
            return functools.partial(_raise, error)
        if plant and not self.planted:
            log.warning("%s: the fault does not show in this graph", self.name)
        return compiled

    def _compile(self, gm: fx.GraphModule, inputs: Sequence[Tensor], *, plant: bool) -> Callable[..., Sequence[Tensor]]:
        shows = plant and self._shows(gm, inputs)
        if shows:
            gm = with_fault(gm, self.node, self.fault, strength=self.strength, output=self.output)
        if self.inner.decompositions:
            gm = traced(fx.Interpreter(gm).run, inputs, self.inner.decompositions)
        compiled = self.inner.compile(gm, inputs)
        if shows:
            self.planted = True
            log.info("compiled %s", self.name)
        return compiled

    def _shows(self, gm: fx.GraphModule, inputs: Sequence[Tensor]) -> bool:
        make_values_known(gm, inputs)
        node = next(item for item in gm.graph.nodes if item.name == self.node)
        return self.condition.met(node, self.output)


def _operations(gm: fx.GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes if node.op == "call_function"]


def _no_such_node(name: str, graph_id: str, names: list[str]) -> ConfigurationError:
    nearest = closest_first(name, names)[:NEAREST]
    more = f" and {len(names) - len(nearest)} more" if len(names) > len(nearest) else ""
    example = f"\nTry: backend.options.node={nearest[0]}" if nearest else ""
    return ConfigurationError(
        f"backend.options.node: got {name!r} in {graph_id}; valid: {', '.join(nearest) or 'none'}{more}.{example}"
    )


def _raise(error: Exception, *inputs: Any) -> Sequence[Tensor]:
    raise error
