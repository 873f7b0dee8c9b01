"""One run of a graph in float64 beside what it really had: every value, its error, and what each operation did wrong.

δ = seen − float64 of what the value's region received is what an operation did wrong, whatever came in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.localize.choices import settled
from inductor_debug.stages.localize.evaluation import Unknown, as_it_is, exactly, is_floating, taken_by, value_of
from inductor_debug.stages.localize.links import Place
from inductor_debug.stages.localize.regions import Seen, is_view


@dataclass
class Pass:
    """One run of a graph.

    Attributes:
        seen: the run.
        actual: every value of it. What was seen is as it was seen; the rest is computed from that, in float64.
        error: values less what they would be without any error; of masks and indices, what they would be. Only of
            values that differ.
        residual: what the operations since the last values that were seen did wrong.
        touched: nodes whose values may have an error.
        links: input → what gave it, of those that an earlier pass gave.
        taken: whether its backward pass is known.
    """

    seen: Seen
    actual: dict[fx.Node, Any] = field(default_factory=dict)
    error: dict[fx.Node, torch.Tensor] = field(default_factory=dict)
    residual: dict[fx.Node, torch.Tensor] = field(default_factory=dict)
    touched: set[fx.Node] = field(default_factory=set)
    links: dict[fx.Node, Place] = field(default_factory=dict)
    taken: bool = False

    def gold(self, node: fx.Node) -> Any:
        """A value as it would be without any error."""
        if node not in self.error:
            return wide(self.actual[node])
        actual, error = self.actual[node], self.error[node]
        return actual.double() - error if is_floating(actual) else error

    def half_way(self, node: fx.Node) -> Any:
        """A value half-way between the run and gold; of what is not floating, gold's."""
        actual = self.actual[node]
        return wide(actual) - self.error[node] / 2 if node in self.error and is_floating(actual) else self.gold(node)

    @property
    def outputs(self) -> list[Any]:
        """What the graph gives; what it writes into its inputs comes first."""
        (node,) = (item for item in self.seen.graph.nodes if item.op == "output")
        written = [item for item in self.seen.graph.nodes
                   if item.target is torch.ops.aten.copy_.default and item.args[0].op == "placeholder"]  # fmt: skip
        return [*written, *node.args[0]]

    @property
    def forward(self) -> str:
        """The id of the forward graph that a backward one belongs to."""
        return self.seen.id.removesuffix("backward") + "forward"

    @property
    def placeholders(self) -> list[fx.Node]:
        return [item for item in self.seen.graph.nodes if item.op == "placeholder"]

    @property
    def last_uses(self) -> dict[fx.Node, list[fx.Node]]:
        """Node → those whose values nothing takes after it."""
        last = {source: node for node in self.seen.graph.nodes for source in taken_by(node)}
        found: dict[fx.Node, list[fx.Node]] = {}
        for source, node in last.items():
            found.setdefault(node, []).append(source)
        return found


def passed(seen: Seen, given: Mapping[str, Any]) -> Pass:
    """Every value of a run, and how far it is from gold.

    Args:
        given: what gold has for some of the inputs, in float64; for the others, what the run had.
    """
    run, gold = Pass(seen), dict[fx.Node, Any]()
    last = run.last_uses
    for node in seen.graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            run.actual[node] = seen.inputs.get(node.name)
            gold[node] = given.get(node.name, run.actual[node])
            if node.name in given:
                run.touched.add(node)
                _set_error(run, node, gold[node])
            continue
        computed = computed_of(node, run.actual, seen)
        several = isinstance(computed, (tuple, list))  # whose parts may have an error of their own
        touched = several or any(source in run.touched for source in taken_by(node))
        gold[node] = computed_of(node, gold, seen) if touched else computed
        known = None if _repeats(node, seen) else seen.values.get(node.name)
        if known is not None and isinstance(computed, torch.Tensor) and computed.numel() == known.numel():
            known = known.reshape(computed.shape)
            if is_floating(known) and is_floating(computed):
                run.residual[node] = _narrow(_difference(known, computed.double()))
                touched = True
        run.actual[node] = computed if known is None else known
        if isinstance(gold[node], Unknown):
            gold[node] = run.actual[node]
        if touched:
            run.touched.add(node)
            gold[node] = _of_equal_ones(run.actual[node], gold[node])
            _set_error(run, node, gold[node])
        for source in last.get(node, ()):
            del gold[source]
            if isinstance(run.actual[source], (tuple, list)):
                run.actual[source] = ()  # its parts have nodes of their own
    return run


def _repeats(node: fx.Node, seen: Seen) -> bool:
    """Whether a value is a view of one that was seen."""
    while is_view(node):
        (node, *_) = taken_by(node) or [node]
        if node.name in seen.values or node.op == "placeholder":
            return True
        if not taken_by(node):
            return False
    return False


def _set_error(run: Pass, node: fx.Node, gold: Any) -> None:
    actual = run.actual[node]
    if not isinstance(actual, torch.Tensor) or not isinstance(gold, torch.Tensor) or actual.shape != gold.shape:
        return
    sources = taken_by(node)
    if len(sources) == 1 and sources[0] in run.error and is_view(node) and node not in run.residual:
        error = computed_of(node, run.error, run.seen)
        if not isinstance(error, Unknown):  # as where its strides do not allow that view
            run.error[node] = error
            return
    error = _difference(actual, gold.double()) if is_floating(actual) else gold
    if bool(error.any() if is_floating(actual) else (actual != gold).any()):
        run.error[node] = _narrow(error) if is_floating(actual) else gold


def _of_equal_ones(actual: Any, gold: Any) -> Any:
    """Gold's index, or that of the run where it points at an equal value."""
    both = isinstance(actual, torch.Tensor) and isinstance(gold, torch.Tensor)
    return settled(actual, gold) if both and not is_floating(actual) else gold


def _difference(actual: torch.Tensor, gold: torch.Tensor) -> torch.Tensor:
    """An error, in float64; 0 where a right value is beyond the format's largest, and infinite in it."""
    error = actual.double() - gold
    if bool(error.isfinite().all()):
        return error
    return torch.where(actual.isinf() & (actual == gold.to(actual.dtype)), 0.0, error)


def _narrow(error: torch.Tensor) -> torch.Tensor:
    """In float32, which holds an error well enough, where it is in its range."""
    narrow = error.float()
    return narrow if bool(narrow.isfinite().all()) else error


def computed_of(node: fx.Node, values: Mapping[fx.Node, Any], seen: Seen) -> Any:
    """What a node gives, in float64 (a view of what there is), or why that is not known."""
    try:
        return value_of(node, values, seen.owner, as_it_is if is_view(node) else exactly, seen.drawn)
    except Unknown as error:
        return error


def wide(value: Any) -> Any:
    return value.detach().double() if is_floating(value) else value
