"""torch's fx minifier on a graph whose failure the tool minified too.

Its steps are its own; what it asks of a part of the graph is answered by the program that the tool would write of it,
in a process of its own, so that it outlives an abort. Both are answered alike: the failure has the same text.
"""

import contextlib
import io
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch.fx_minifier import minifier

from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.minify.candidate import (
    ALIGNMENT,
    Candidate,
    Given,
    NumberGiven,
    Stored,
    TensorGiven,
    drawn_like,
)  # fmt: skip
from inductor_debug.stages.minify.trials import Trials


@dataclass
class Theirs:
    """What torch's minifier made of a graph.

    Attributes:
        operations: of the smallest part that it took; 0 where it took none.
        failure: that this one shows.
        queries: parts that it asked for, those that it had asked for before included.
        others: of these, parts that show another failure than the graph.
        seconds: wall clock.
        why: it ended without a result of its own; empty where it came to its end.
    """

    operations: int = 0
    failure: str = ""
    queries: int = 0
    others: int = 0
    seconds: float = 0.0
    why: str = ""


class _TimeIsUp(Exception):
    """Raised in torch's minifier."""


Shows = Callable[[fx.GraphModule, Sequence[Any]], str | None]
"""The failure of a part of a graph, on its inputs; None where it shows none."""


class TorchMinifier:
    """torch's minifier, and its questions.

    Args:
        seen: a run of the graph.
        shows: answers them.
        accepts: whether a failure is one that is looked for.
        budget_s: seconds after which the next question ends it.
    """

    def __init__(self, seen: Seen, shows: Shows, accepts: Callable[[str], bool], budget_s: float) -> None:
        self._seen, self._shows, self._accepts = seen, shows, accepts
        self._until, self.result = time.monotonic() + budget_s, Theirs()

    def run(self) -> Theirs:
        """Reduce the graph."""
        began = time.monotonic()
        graph = fx.GraphModule(self._seen.owner, self._seen.graph)
        inputs = [self._seen.inputs[node.name] for node in graph.graph.nodes if node.op == "placeholder"]
        inputs = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
        with contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
            try:
                minifier(graph, inputs, self.fails, dump_state=lambda *_: None)
            except _TimeIsUp:
                self.result.why = "time was up"
            except Exception as error:  # noqa: BLE001 - whatever it raises is a row of the table
                self.result.why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
        self.result.seconds = time.monotonic() - began
        return self.result

    def fails(self, module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        """Whether a part of the graph fails."""
        if time.monotonic() > self._until:
            raise _TimeIsUp
        self.result.queries += 1
        found = self._shows(module, inputs)
        if found is None or not self._accepts(found):
            self.result.others += found is not None
            return False
        count = Candidate(module.graph, ()).operations
        if not self.result.failure or count <= self.result.operations:
            self.result.operations, self.result.failure = count, found
        return True


class Programs:
    """Answers questions by the programs that the tool would write of the parts."""

    def __init__(self, seen: Seen, trials: Trials) -> None:
        self._trials, self._known = trials, dict[str, Given]()
        self._dynamic = any(
            isinstance(size, torch.SymInt) for node in seen.graph.nodes for size in _sizes(node.meta.get("val"))
        )

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> str | None:
        found = self._trials.found(self._candidate(module, inputs))
        return None if found is None else found.text

    def _candidate(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Candidate:
        graph, given = fx.Graph(), list[Given]()
        copies: dict[fx.Node, fx.Node] = {}
        left = iter(inputs)
        for node in module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                value = operator.attrgetter(str(node.target))(module) if node.op == "get_attr" else next(left)
                copies[node] = graph.placeholder(node.name)
                copies[node].meta = dict(node.meta)
                given.append(self._given(node, value))
            elif node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
                continue
            else:
                graph.output(tuple(_tensors(graph, node, copies)))
        return Candidate(graph, tuple(given), self._dynamic)

    def _given(self, node: fx.Node, value: Any) -> Given:
        if node.name not in self._known:  # a node has one value, however often it is an input
            self._known[node.name] = self._made(node, value)
        return self._known[node.name]

    def _made(self, node: fx.Node, value: Any) -> Given:
        if not isinstance(value, torch.Tensor):
            return NumberGiven(node.name, value)
        self._trials.keep(node.name, value)
        like = node.meta.get("val")
        offset = like.storage_offset() if isinstance(like, torch.Tensor) else 0
        offset = offset % (ALIGNMENT // value.element_size()) if type(offset) is int else 0
        symbolic = tuple(place for place, size in enumerate(_sizes(like)) if isinstance(size, torch.SymInt))
        return TensorGiven(node.name, tuple(value.shape), value.stride(), value.dtype, str(value.device), offset,
                           Stored(node.name), drawn_like(value), symbolic)  # fmt: skip


def _sizes(value: Any) -> Sequence[Any]:
    return value.shape if isinstance(value, torch.Tensor) else ()


def _tensors(graph: fx.Graph, output: fx.Node, copies: dict[fx.Node, fx.Node]) -> list[fx.Node]:
    """The tensors that a graph gives, taken out of what has several."""
    found: list[fx.Node] = []
    for node in output.all_input_nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            found.append(copies[node])
        for place, item in enumerate(value if isinstance(value, (tuple, list)) else ()):
            if isinstance(item, torch.Tensor):
                found.append(graph.call_function(operator.getitem, (copies[node], place)))
    return found
