"""What stands between Dynamo and an adapter's ``compile``: AOTAutograd, or nothing. It numbers the graphs."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

from torch import Tensor, fx

from inductor_debug.stages.backends.execution import Watch
from inductor_debug.stages.backends.graph_records import Halves, graph_records
from inductor_debug.stages.backends.lowering import Lowering, ToldGraph
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.torch_internals.backends import aot_backend

Level = Literal["aot", "dynamo"]
Compile = Callable[[fx.GraphModule, Sequence[Tensor]], Callable[..., Sequence[Tensor]]]

_given: "WeakKeyDictionary[fx.GraphModule, tuple[Halves, str]]" = WeakKeyDictionary()
"""A graph that a front has given to an adapter → where it is from."""


_GRAPH = "inductor_debug_graph"
"""Where a node's metadata has the id of its graph: a part that is cut out keeps it with the node."""


def mark(gm: fx.GraphModule, graph_id: str) -> None:
    """Have each node say which graph it is from; names alone are not unique among graphs."""
    for node in gm.graph.nodes:
        node.meta[_GRAPH] = graph_id


def graph_of(node: fx.Node) -> str | None:
    """Id of the graph that a node is from, where a front gave that to an adapter, whole or in parts; else None."""
    found: str | None = node.meta.get(_GRAPH)
    return found


def record_of(gm: fx.GraphModule) -> GraphRecord:
    """The record of a graph that an adapter is given: its id, and its nodes with the model's lines and modules.

    A graph that came by another way than a :class:`Front` is called ``g0.forward``.
    """
    place = _given.get(gm)
    if place is None:
        return graph_records({"g0.forward": gm})[0]
    halves, direction = place
    return halves.record(direction, gm)


class Front:
    """A backend of ``torch.compile`` that gives each graph to an adapter's ``compile``.

    Args:
        compile: the adapter's.
        level: ``aot``: AOTAutograd comes first, and gives forward and backward apart; ``dynamo``: nothing does.
        decompositions: applied while AOTAutograd traces.
        recompute: as of :func:`stages.torch_internals.backends.aot_backend`.
        lowering: asked what each callable that ``compile`` gave was lowered to; None: that is not asked.
        name: the adapter's.

    Attributes:
        graphs: what each graph was lowered to, by id, where ``lowering`` is asked.
        compiled: graphs that the adapter has compiled.
        watch: sees who executes them; by default for nobody.
    """

    def __init__(
        self,
        compile: Compile,
        *,
        level: Level = "aot",
        decompositions: Mapping[Any, Callable[..., Any]] | None = None,
        recompute: bool = True,
        lowering: Callable[[Callable[..., Any]], Lowering | None] | None = None,
        name: str = "",
    ) -> None:
        self._compile, self._level, self._lowering, self._name = compile, level, lowering, name
        self._decompositions, self._recompute = decompositions, recompute
        self._fresh = itertools.count()
        self.graphs: dict[str, ToldGraph] = {}
        self.compiled = 0
        self.watch = Watch()

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        number = f"g{next(self._fresh)}"
        halves = Halves(number, gm)
        common = ToldGraph.of_dynamo(number, gm, self._name) if self._lowering is not None else None

        def compiler(direction: str) -> Compile:
            return lambda graph, inputs: self._compiled(halves, common, direction, graph, inputs)

        if self._level == "dynamo":
            return compiler("dynamo")(gm, example_inputs)
        aot = aot_backend(
            forward=compiler("forward"),
            backward=compiler("backward"),
            inference=compiler("forward"),
            decompositions=self._decompositions,
            partitioned=halves.keep,
            recompute=self._recompute,
        )
        return aot(gm, example_inputs, **options)

    def _compiled(
        self, halves: Halves, common: ToldGraph | None, direction: str, gm: fx.GraphModule, inputs: Sequence[Any]
    ) -> Callable[..., Any]:
        _given[gm] = (halves, direction)
        mark(gm, f"{halves.number}.{direction}")
        told = common.given(direction, gm, record_of(gm)) if common is not None else None
        began = time.perf_counter()
        compiled, watched = self.watch.watched(lambda: self._compile(gm, inputs), gm)
        self.compiled += 1
        if told is not None and self._lowering is not None:
            told.seconds = time.perf_counter() - began
            told.tell(self._lowering(compiled))
            self.graphs[told.id] = told
        return watched
