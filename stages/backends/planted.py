"""Faults planted in a backend on purpose, so that what is found can be held against what was planted.

    backend.adapter=inductor_debug.stages.backends.planted.PlantedFault +backend.options.inner=inductor
    +backend.options.node=mm_1 +backend.options.fault=scale

The graph is AOTAutograd's, partitioned and named as the capture stage shows it. The fault is traced into it, then the
inner adapter's decompositions are applied and the inner adapter compiles the result: its own code commits the fault.
"""

import functools
import itertools
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, fx

from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.execution import Executor
from inductor_debug.stages.backends.fault_kinds import FAULTS, Site, valid_strength
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
        inner: the adapter, its name, or its dotted path.
        node: name of the node in the captured AOT graph; it must be an operation.
        graph: ``g0.forward``, ``g0.backward``, ``g1.forward``, …
        fault: one of :data:`FAULTS`.
        strength: see :data:`FAULTS`; the fault's own by default.
        output: which output of an operation that has several.
        options, inductor: the inner adapter's ``backend.options`` and ``backend.inductor``, where it is named.
        accel: the profile for it, where it is named.

    Attributes:
        planted: True once the graph with the fault has been compiled.
        graphs: ids of the graphs compiled since :meth:`dynamo_backend`.

    Raises:
        ConfigurationError: When built: the fault, graph id, strength or inner adapter does not exist. When the compiled
            graph first runs: it does not have the node, or the node can't have the fault. From
            :meth:`validate_compiled`: the graph was never compiled.
    """

    def __init__(
        self,
        inner: AcceleratorAdapter | str,
        node: str,
        fault: str,
        graph: str = "g0.forward",
        strength: float | None = None,
        output: int = 0,
        options: Mapping[str, Any] | None = None,
        inductor: Mapping[str, Any] | None = None,
        accel: AccelConfig | None = None,
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
        named = isinstance(inner, str)
        config = BackendConfig(str(inner), str(inner), dict(options or {}), dict(inductor or {}))
        self.inner: AcceleratorAdapter = build_adapter(config, accel) if named else inner  # type: ignore[assignment]
        self.name = f"{self.inner.name} with {fault} at {graph}:{node}"
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
        if self.planted:
            return
        raise invalid_choice("backend.options.graph", self.graph, self.graphs)

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """Compile a graph, or a part of one; the fault is planted where it has an operation of that name."""
        return self._compile(gm, example_inputs, plant=self.node in _operations(gm))

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
        try:
            if plant and self.node not in _operations(gm):
                raise _no_such_node(self.node, graph_id, _operations(gm))
            return self._compile(gm, inputs, plant=plant)
        except ConfigurationError as error:
            return functools.partial(_raise, error)

    def _compile(self, gm: fx.GraphModule, inputs: Sequence[Tensor], *, plant: bool) -> Callable[..., Sequence[Tensor]]:
        if not plant:
            return self.inner.compile(retraced(fx.Interpreter(gm), inputs, self.inner.decompositions), inputs)
        planting = _Planting(gm, self)
        memory = planting.memory(inputs) if self.fault.remembers else []
        inputs = [*inputs, *memory]
        compiled = self.inner.compile(retraced(planting, inputs, self.inner.decompositions), inputs)
        self.planted = True
        log.info("compiled %s", self.name)
        if not memory:
            return compiled
        return _Remembering(compiled, memory[0].shape, {"dtype": memory[0].dtype, "device": memory[0].device})


class _Planting(fx.Interpreter):
    """Runs a graph as it is, but for one value. With a memory, that is two more inputs and one more output."""

    extra_traceback = False  # it would be written into the user's message

    def __init__(self, gm: fx.GraphModule, plan: PlantedFault) -> None:
        super().__init__(gm)
        self.plan = plan
        self.site: Site | None = None
        self.remembered: tuple[Tensor, ...] = ()
        self.node: fx.Node = next(node for node in gm.graph.nodes if node.name == plan.node)

    def run(self, *inputs: Any) -> Any:  # type: ignore[override]
        count = len(inputs) - 2 if self.plan.fault.remembers else len(inputs)
        self.remembered = inputs[count:]
        outputs = super().run(*inputs[:count])
        assert self.site is not None
        return (*outputs, self.site.value) if self.remembered else outputs

    def run_node(self, n: fx.Node) -> Any:
        if n is not self.node:
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        result = super().run_node(n)
        several = isinstance(result, (tuple, list))
        self._check_output(result)
        value = result[self.plan.output] if several else result
        output = self.plan.output if several else None
        self.site = Site(n.target, args, kwargs, value, output, self.plan.strength, *self.remembered)
        wrong = self._wrong(self.site)
        return type(result)(wrong if i == output else each for i, each in enumerate(result)) if several else wrong

    def _check_output(self, result: Any) -> None:
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        tensors = [index for index, each in enumerate(outputs) if isinstance(each, Tensor)]
        if self.plan.output not in tensors:
            raise invalid_choice("backend.options.output", self.plan.output, map(str, tensors))

    def _wrong(self, site: Site) -> Tensor:
        wrong = self.plan.fault.apply(site)
        assert (wrong.shape, wrong.dtype) == (site.value.shape, site.value.dtype), site.target
        if wrong.stride() == site.value.stride():
            return wrong
        return torch.ops.aten.copy.default(site.value, wrong)  # what follows may view it, which depends on strides

    def memory(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The value of the call before and whether there was none, as example inputs."""
        value = self.node.meta["val"]
        self._check_output(value)
        value = value[self.plan.output] if isinstance(value, (tuple, list)) else value
        if not all(isinstance(size, int) for size in value.shape):
            raise ConfigurationError(
                f"backend.options.fault: got 'stale_buffer' at {self.node.name} of shape {tuple(value.shape)}; "
                "valid: a node without symbolic sizes."
            )
        with _fake_mode(inputs):
            previous = torch.zeros(tuple(value.shape), dtype=value.dtype, device=value.device)
            return [previous, torch.ones((), dtype=torch.bool, device=value.device)]


class _Remembering:
    """Calls a compiled graph with its last output of the call before."""

    def __init__(
        self, compiled: Callable[..., Sequence[Tensor]], shape: Sequence[int], like: Mapping[str, Any]
    ) -> None:
        self.compiled, self.shape, self.like = compiled, tuple(shape), dict(like)
        self.previous: Tensor | None = None

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        first = torch.tensor(self.previous is None, device=self.like["device"])
        previous = torch.zeros(self.shape, **self.like) if self.previous is None else self.previous
        *outputs, value = self.compiled(*inputs, previous, first)
        self.previous = value.detach().clone(memory_format=torch.contiguous_format)
        return outputs


def retraced(
    interpreter: fx.Interpreter, inputs: Sequence[Any], decompositions: Mapping[Any, Callable[..., Any]] | None
) -> fx.GraphModule:
    """What ``interpreter`` does with inputs like these, as a graph, decomposed."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with _fake_mode(inputs) as mode, fx.traceback.preserve_node_meta(), torch.no_grad():
        trace = make_fx(
            interpreter.run,
            decomposition_table=dict(decompositions or {}),
            tracing_mode="fake" if mode is None else "real",
        )
        graph: fx.GraphModule = trace(*inputs)
    return graph


def _fake_mode(inputs: Sequence[Any]) -> AbstractContextManager[Any]:
    """The fake tensors' own mode, in which tensors that a fault makes are fake too; nothing for real tensors."""
    modes = [mode for tensor in inputs if (mode := getattr(tensor, "fake_mode", None)) is not None]
    return modes[0] if modes else nullcontext()


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
