"""One step in float64 beside what it really had: what each operation did wrong, and what remains if some is mended.

δ = seen − float64 of what the value's region received is what an operation did wrong, whatever came in. With every δ
added where it arose, float64 gives what the step gave. Without some of them it gives what the step would have given.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.localize.choices import settled
from inductor_debug.stages.localize.evaluation import Unknown, as_it_is, exactly, is_floating, taken_by, value_of
from inductor_debug.stages.localize.regions import Seen, is_view

Name = tuple[str, str]
"""Graph id and node."""

Cotangents = dict[fx.Node, torch.Tensor]


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
        saved: how many of the last results are for the backward graph.
    """

    seen: Seen
    actual: dict[fx.Node, Any] = field(default_factory=dict)
    error: dict[fx.Node, torch.Tensor] = field(default_factory=dict)
    residual: dict[fx.Node, torch.Tensor] = field(default_factory=dict)
    touched: set[fx.Node] = field(default_factory=set)
    saved: int = 0

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


class Step:
    """The passes of one step, a forward and where it was trained a backward one.

    Args:
        runs: of its graphs.

    Attributes:
        passes: empty where the step can't be followed from its inputs to its outputs.
        missing: why not, and what else is not accounted for, in words.
        error: root of the sum of the squared relative errors of outputs and gradients.
        cotangents: by pass, the errors of its outputs over the square of ``error``.
    """

    @torch.no_grad()
    def __init__(self, runs: Sequence[Seen]) -> None:
        self.passes: list[Pass] = []
        self.missing: list[str] = []
        self.error, self.cotangents = 0.0, list[Cotangents]()
        forwards, backwards = ([run for run in runs if run.id.endswith(side)] for side in ("forward", "backward"))
        if len(forwards) != 1 or len(backwards) > 1 or any(run.call for run in runs):
            self.missing.append(
                "shares of the final error, which are of one step through one forward graph and its backward: "
                f"{len(forwards)} and {len(backwards)} passes ran"
            )
            return
        first = _forward(forwards[0], {})
        self.passes.append(first)
        if backwards:
            given = self._given(first, backwards[0])
            self.passes.append(_forward(backwards[0], given))
        errors = [{node: each.error[node] for node in each.outputs if node in each.error} for each in self.passes]
        self.cotangents, self.error = self._relative(errors)

    def _given(self, first: Pass, backward: Seen) -> dict[str, Any]:
        """What gold's backward is given of what its forward left.

        AOTAutograd's forward gives what it saves last, and its backward takes it first.
        """
        names = [node.name for node in backward.graph.nodes if node.op == "placeholder"]
        saved = [name for name in names if not name.startswith("tangents")]
        given: dict[str, Any] = {}
        for name, node in zip(saved, first.outputs[len(first.outputs) - len(saved) :], strict=False):
            value = backward.inputs.get(name)
            if not isinstance(node, fx.Node) or not isinstance(value, torch.Tensor):
                continue
            mine = first.actual.get(node)
            if not isinstance(mine, torch.Tensor) or not _same(mine, value):
                self.missing.append(f"{backward.id} {name}, which is not what {first.seen.id} {node.name} has")
                return {}
            if node in first.error:
                given[name] = first.gold(node)
        first.saved = len(saved)
        return given

    def _relative(self, errors: Sequence[Mapping[fx.Node, torch.Tensor]]) -> tuple[list[Cotangents], float]:
        """The errors of each pass's outputs as cotangents, and the root of the sum of their squares.

        Outputs, and gradients, are relative to their size as a whole: one may be zero but for rounding.
        """
        cotangents: list[Cotangents] = []
        total = 0.0
        for each, wrong in zip(self.passes, errors, strict=True):
            outputs = each.outputs[: len(each.outputs) - each.saved]
            nodes = [
                node for node in dict.fromkeys(outputs) if isinstance(node, fx.Node) and _finite(each.actual[node])
            ]
            size = sum(float(each.gold(node).square().sum()) for node in nodes)
            found = {node: wrong[node].double() for node in nodes if node in wrong} if size else {}
            total += sum(float(error.square().sum()) for error in found.values()) / (size or 1.0)
            cotangents.append({node: error / size for node, error in found.items()})
        if total:
            cotangents = [{node: error / total for node, error in each.items()} for each in cotangents]
        return cotangents, total**0.5

    @torch.no_grad()
    def remaining(self, mended: Collection[Name]) -> float:
        """The share of :attr:`error` that remains where some values are right for what they received.

        Args:
            mended: names of values that were seen.
        """
        results: list[dict[fx.Node, Any]] = []
        for number, each in enumerate(self.passes):
            given: dict[str, Any] = {}
            if number:
                first = self.passes[0]
                saved = first.outputs[len(first.outputs) - first.saved :]
                given = {node.name: results[0][result] for node, result in zip(each.placeholders, saved, strict=False)
                         if result in results[0]}  # fmt: skip
            results.append(_with_errors(each, given, mended))
        errors = [
            {node: value - each.gold(node) for node, value in values.items() if is_floating(value)}
            for each, values in zip(self.passes, results, strict=True)
        ]
        return self._relative(errors)[1] / self.error


def _with_errors(run: Pass, given: Mapping[str, Any], mended: Collection[Name]) -> dict[fx.Node, Any]:
    """What a pass gives with errors added where they arose, but for those of values that are mended."""
    values: dict[fx.Node, Any] = {}
    outputs, last = set(run.outputs), run.last_uses
    for node in run.seen.graph.nodes:
        if node.op == "output":
            continue
        value = given.get(node.name, run.actual[node])
        if node.op != "placeholder" and node in run.touched:
            value = computed_of(node, values, run.seen)
            if isinstance(value, Unknown):
                value = run.actual[node]
            elif node in run.residual and (run.seen.id, node.name) not in mended:
                value = value + run.residual[node]
        values[node] = value
        for source in last.get(node, ()):
            if source not in outputs:
                del values[source]
    return {node: value for node, value in values.items() if node in outputs}


def _forward(seen: Seen, given: Mapping[str, Any]) -> Pass:
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


def _same(mine: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether values are those that were received; what was not seen was computed anew, and may differ by rounding."""
    if mine.numel() != value.numel():
        return False
    if not value.is_floating_point():
        return True
    received = value.double().reshape(mine.shape)
    near = (mine.double() - received).norm() <= 0.1 * received.norm()
    return bool(near) or not bool(received.isfinite().all())


def _finite(value: Any) -> bool:
    return is_floating(value) and bool(value.isfinite().all())
