"""Who executes what a backend compiled: its calls are counted, and what others execute within them."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, fx

from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.torch_internals.execution import (
    OperationCounter,
    backward_node,
    count_operations,
    executes,
    inductor_calls,
    is_inductor,
    memories,
)

Executor = Literal["own", "inductor", "torch"]
Compiled = Callable[..., Any]


def executor_of(backend: Compiled) -> Executor:
    """Who is to execute what a backend of ``torch.compile`` compiles: as its attribute ``executor`` says, or itself."""
    return "inductor" if is_inductor(backend) else getattr(backend, "executor", "own")


@dataclass(eq=False)
class _Graph:
    """One compiled graph, and what its calls showed in a step.

    Attributes:
        operations: it holds; see :func:`stages.torch_internals.execution.count_operations`.
        constants: tensors that it holds.
        as_traced: the backend gave back the graph itself.
        backward: whether autograd recorded its calls, so that a backward belongs to it.
        whole, parts: calls whose results TorchInductor's code computed, and in which it computed something.
        torch_operations: operations that torch executed within its calls.
    """

    operations: int = 0
    constants: list[Tensor] = field(default_factory=list)
    as_traced: bool = False
    calls: int = 0
    backward: bool = False
    whole: int = 0
    parts: int = 0
    torch_operations: int = 0


class _Call:
    """One call of a graph: whether TorchInductor's code made its results of its inputs."""

    def __init__(self, graph: _Graph, inputs: list[Any]) -> None:
        self.graph = graph
        self.known = memories((inputs, graph.constants))
        self.kept: list[Any] = [inputs]  # so that no memory is used again
        self.seen, self.foreign = False, False

    def by_inductor(self, call: Callable[[], Any], inputs: list[Any]) -> Any:
        self.kept.append(inputs)
        self.seen, self.foreign = True, self.foreign or not self._knows(inputs)
        result = call()
        self.kept.append(result)
        self.known |= memories(result)
        return result

    def ended(self, result: Any) -> None:
        self.graph.calls += 1
        leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        self.graph.backward |= any(leaf.grad_fn is not None for leaf in leaves)  # a weight that is saved has none
        if self.seen:
            whole = not self.foreign and self._knows(result)
            self.graph.whole, self.graph.parts = self.graph.whole + whole, self.graph.parts + (not whole)

    def _knows(self, values: Any) -> bool:
        return memories(values) <= self.known - {0}


class Watch:
    """Counts the calls of what a backend compiled, while :meth:`step` is open.

    Of a backend that is to execute graphs itself it sees what others execute within them. A graph counts as executed by
    TorchInductor where its code made all results of a call, of the call's own inputs; so a backend that leaves it parts
    of a graph is told from one that leaves it all.

    Args:
        executor: who is to execute the graphs.
        backend: the name of what compiles them.

    Attributes:
        counting: whether operations are counted now.
    """

    def __init__(self, executor: Executor = "torch", backend: str = "") -> None:
        self.executor, self.backend = executor, backend
        self.graphs: list[_Graph] = []
        self._open = False
        self.counting = False
        self._forward = False
        self._calls: list[_Call] = []
        self._backward_nodes: list[Any] = []
        self._backwards = 0
        self._outside: int | None = None

    def watched(self, compile: Callable[[], Compiled], gm: fx.GraphModule) -> tuple[Compiled, Compiled]:
        """What ``compile()`` made of a graph, and the same with its calls watched."""
        graph, code = _Graph(), ""
        if self.executor == "own":
            graph.operations, graph.constants, code = count_operations(gm), [*gm.parameters(), *gm.buffers()], gm.code
        self.graphs.append(graph)
        compiled = compile()
        graph.as_traced = bool(code) and executes(compiled, gm) and gm.code == code
        return compiled, self._calling(graph, compiled)

    def around(self, compiled: Compiled) -> Compiled:
        """The same; within its calls graphs are called that are watched, and what else runs there is no matter."""
        return self._calling(_Graph(), compiled)

    def _calling(self, graph: _Graph, compiled: Compiled) -> Compiled:
        def call(*args: Any) -> Any:
            if not self._open:
                return compiled(*args)
            if self.executor != "own":
                graph.calls += 1
                return compiled(*args)
            self._calls.append(_Call(graph, pytree.tree_leaves(args)))  # a list of inputs is emptied by the call
            try:
                result = compiled(*args)
                self._calls[-1].ended(result)
                return result
            finally:
                self._calls.pop()

        if getattr(compiled, "_boxed_call", False):
            call._boxed_call = True  # type: ignore[attr-defined]
        return call

    @contextlib.contextmanager
    def step(self, *, operations: bool = False) -> Iterator[None]:
        """To be open around one step, of which :meth:`execution` then tells.

        Args:
            operations: count those that torch executes too, by a mode under which eager code may round otherwise.
        """
        for graph in self.graphs:
            graph.calls = graph.whole = graph.parts = graph.torch_operations = 0
            graph.backward = False
        self._backwards, self._outside = 0, 0 if operations else None
        self.counting = operations
        with contextlib.ExitStack() as stack:
            if self.executor == "own":
                stack.enter_context(inductor_calls(self._by_inductor))
            if operations:
                stack.enter_context(OperationCounter(self._count))
            self._open = True
            try:
                yield
            finally:
                self._open = self.counting = False
                self._backward_nodes.clear()  # they keep tensors

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        """To be open around the model's forward: what runs there and in no graph is outside of all graphs."""
        self._forward = True
        try:
            yield
        finally:
            self._forward = False

    def _by_inductor(self, call: Callable[[], Any], inputs: list[Any]) -> Any:
        if self._calls:
            return self._calls[-1].by_inductor(call, inputs)
        node = backward_node()
        if node is not None and all(node is not known for known in self._backward_nodes):
            self._backward_nodes.append(node)
            self._backwards += 1
        return call()

    def _count(self) -> None:
        if self._calls:
            self._calls[-1].graph.torch_operations += 1
        elif self._forward and self._outside is not None:
            self._outside += 1

    def execution(self) -> Execution:
        """Of the step that :meth:`step` was open around."""
        called = [graph for graph in self.graphs if graph.calls]
        calls = sum(graph.calls for graph in called)
        if self.executor != "own":
            return Execution(
                backend=self.backend,
                executor=self.executor,
                given=len(self.graphs),
                graphs=len(called),
                calls=calls,
            )
        backwards = sum(graph.backward and not graph.as_traced for graph in called)
        by_inductor = min(self._backwards, backwards)
        whole = [graph for graph in called if graph.whole == graph.calls]
        rest = [graph for graph in called if graph not in whole and not graph.as_traced]
        return Execution(
            backend=self.backend,
            executor=self.executor,
            given=len(self.graphs) + backwards,
            graphs=len(called) + backwards,
            calls=calls + by_inductor,
            inductor=len(whole) + by_inductor,
            inductor_parts=sum(bool(graph.whole or graph.parts) for graph in rest),
            as_traced=sum(graph.as_traced for graph in called),
            torch_operations=None if self._outside is None else sum(graph.torch_operations for graph in rest),
            graph_operations=None if self._outside is None else sum(graph.operations * graph.calls for graph in rest),
            outside=self._outside,
        )
