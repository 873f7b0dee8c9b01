"""Ranges around the operations of a graph that torch executes: for the backends ``eager`` and ``aot_eager``.

The graph is run node by node, each call in a range, by the operators that its own code would call. What autograd
records inside a range of ``eager``'s graph has its backward told by autograd's sequence number.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter, run_as_traced
from inductor_debug.stages.graphs.known import known_total
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord
from inductor_debug.stages.lower.attribution import Part
from inductor_debug.stages.profile.observation import BACKWARD
from inductor_debug.stages.profile.work import FLOATING, Work
from inductor_debug.stages.torch_internals.backends import aot_backend
from inductor_debug.stages.torch_internals.fx_records import RecordContext, graph_record
from inductor_debug.stages.torch_internals.generated_ranges import range_name
from inductor_debug.stages.torch_internals.profiling import fast_range


class RangedNodes(AcceleratorAdapter):
    """The same as ``adapter``, whose graphs torch executes as traced, with a range around each call of its graphs.

    Attributes:
        name: that of the adapter.
        graphs: what was compiled, by id.
    """

    def __init__(self, adapter: AcceleratorAdapter, case: Case) -> None:
        self.name, self.level = adapter.name, adapter.level
        self.graphs: dict[str, GraphRecord] = {}
        self._context = RecordContext.of(case.module)
        self._count = 0

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return run_as_traced(gm)

    def dynamo_backend(self) -> Callable[..., Any]:
        def backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            number, self._count = self._count, self._count + 1
            if self.level == "dynamo":
                return self._ranged(f"g{number}.dynamo", gm)
            self._context = self._context.for_graph()

            def compiler(direction: str) -> Callable[..., Any]:
                return lambda graph, inputs: self._ranged(f"g{number}.{direction}", graph)

            return aot_backend(
                forward=compiler("forward"), backward=compiler("backward"), inference=compiler("forward")
            )(gm, example_inputs)

        return backend

    def _ranged(self, graph_id: str, gm: fx.GraphModule) -> Callable[..., Any]:
        self.graphs[graph_id] = graph_record(gm.graph, id=graph_id, context=self._context)
        runner = _Ranged(gm, graph_id)
        return runner.run


class _Ranged(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, graph_id: str) -> None:
        super().__init__(gm)
        self.graph_id = graph_id

    def run_node(self, n: fx.Node) -> Any:
        if not n.op.startswith("call_"):
            return super().run_node(n)
        with fast_range(range_name(self.graph_id, n.name)):
            return super().run_node(n)


def node_work(graph: GraphRecord, *, training: bool) -> list[Work]:
    """The operations of a graph, in order; with those of their backward where autograd makes it of this graph."""
    calls = [node for node in graph.nodes if node.is_operation]
    found = [_work(graph, node) for node in calls]
    if training and graph.kind == "dynamo":
        found += [_backward(item) for item in found]
    return found


def _work(graph: GraphRecord, node: NodeRecord) -> Work:
    source, code = ("", "") if node.source is None else (str(node.source), node.source.code)
    read = [output for name in node.inputs for output in graph.by_name[name].outputs]
    floating = [output for output in read if output.dtype in FLOATING]
    widest = max(floating, key=lambda output: output.nbytes or 0, default=None)
    return Work(
        graph=graph.id,
        kernel=f"{node.target} {node.name}",
        handle=None,
        kind="operation",
        range=range_name(graph.id, node.name),
        parts=[Part(node.target, node.module, source, code, 1.0)],
        bytes_read=None if node.aliases else known_total([output.nbytes for output in read]),
        bytes_written=None if node.aliases else known_total([output.nbytes for output in node.outputs]),
        flops=node.flops,
        dtype="" if node.flops is None or widest is None else widest.dtype,
    )


def _backward(work: Work) -> Work:
    """What autograd does for an operation's gradient: its bytes and FLOPs are not known here."""
    kernel, range = f"{work.kernel}{BACKWARD}", f"{work.range}{BACKWARD}"
    return Work(work.graph, kernel, work.handle, "backward", range, work.parts, notes=work.notes)
