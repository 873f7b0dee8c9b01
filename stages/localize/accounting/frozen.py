"""One step in float64 beside what it really had: what each operation did wrong, and what remains if some is mended.

δ = seen − float64 of what the value's region received is what an operation did wrong, whatever came in. With every δ
added where it arose, float64 gives what the step gave. Without some of them it gives what the step would have given.
"""

from collections import ChainMap
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.localize.accounting.links import SUMS, Ends, Ledger, Place, summed
from inductor_debug.stages.localize.accounting.passes import Pass, computed_of
from inductor_debug.stages.localize.judging.evaluation import Unknown, is_floating, taken_by
from inductor_debug.stages.localize.judging.noise import squared
from inductor_debug.stages.localize.runs.kept import Store, read
from inductor_debug.stages.localize.runs.regions import Seen

Name = tuple[str, str]
"""Graph id and node."""

Cotangents = MutableMapping[fx.Node, torch.Tensor]


ROUNDED = 16
"""Epsilons of its dtype by which the numbers of a graph may change a result: a constant may stand in it rounded."""


class Lost(Exception):
    """Where a value comes from is not known; the message says why."""


class Step:
    """The passes of one step in order: its forward graphs, and where it was trained its backward ones.

    Args:
        runs: of its graphs, in order.
        ends: what it began and ended with.

    Attributes:
        passes: what autograd adds up between graphs among them; empty where the step can't be followed from its inputs
            to its outputs.
        missing: why not, and what else is not accounted for, in words.
        error: root of the sum of the squared relative errors of outputs and gradients.
        outputs, gradients: where what the step gave is from, by path.
        weights: by pass, what the errors of what it gave to the step are multiplied by to be cotangents of ``error``.
    """

    @torch.no_grad()
    def __init__(self, runs: Sequence[Seen], ends: Ends) -> None:
        self.passes: list[Pass] = []
        self.missing: list[str] = []
        self.error, self.weights = 0.0, list[dict[fx.Node, float]]()
        self.outputs, self.gradients = dict[str, Place](), dict[str, Place]()
        self.store = Store()
        self._ledger = Ledger()
        self._gradients: dict[Any, tuple[Any, Place | None]] = {}  # of a value, as far as they are added up
        for value in ends.given.values():
            self._ledger.add(value, None, value.data_ptr())
        forwards, backwards = ([run for run in runs if run.id.endswith(side)] for side in ("forward", "backward"))
        try:
            for run in forwards:
                self._follow(run)
            given = self._found(ends.outputs, "")
            for path, gradient in ends.begun.items():
                if path in given:
                    self._add_gradient(given[path], gradient, None)
            for run in backwards:
                self._follow(run)
                self._add_gradients(len(self.passes) - 1)
        except Lost as error:
            self.passes = []
            self.missing.append(f"shares of the final error: {error}")
            return
        self.outputs, self.gradients = given, self._found(ends.gradients, "gradient ")
        self._groups = [list(dict.fromkeys(found.values())) for found in (given, self.gradients)]
        self.weights, self.error = self._relative([each.error for each in self.passes])

    def _follow(self, seen: Seen, links: Mapping[fx.Node, Place] | None = None) -> None:
        """A further pass."""
        placeholders = [node for node in seen.graph.nodes if node.op == "placeholder"]
        if links is None:
            links = {node: place for node in placeholders if (place := self._received(seen, node)) is not None}
        errors = {node: error for node, (number, source) in links.items()
                  if (error := self.passes[number].error.get(source)) is not None}  # fmt: skip
        run = Pass(seen, errors, links, self.store)
        self.passes.append(run)
        self.missing += [f"{seen.id} {node.name} ({node.target}): {why}" for node, why in run.lost.items()
                         if run.is_floating(node)]  # fmt: skip
        for node in dict.fromkeys(run.outputs):
            if isinstance(node, fx.Node):
                place = len(self.passes) - 1, node
                self._ledger.add(
                    run.actual.get(node), place, seen.addresses.get(node.name), run.actual.entries.get(node)
                )

    def _received(self, seen: Seen, node: fx.Node) -> Place | None:
        """What gave a pass one of its inputs; None: the step had it, or it is no tensor."""
        value = seen.inputs.get(node.name)
        if not isinstance(value, torch.Tensor) or not self.passes:
            self._ledger.add(value, None, seen.addresses.get(node.name))
            return None
        try:
            return self._source(value, seen.addresses.get(node.name))
        except Lost as error:
            if seen.id.endswith("backward") and not value.any():
                return None  # AOTAutograd's, for what has no gradient
            raise Lost(f"{seen.id} received {node.name}, {error}") from error

    def _source(self, value: torch.Tensor, address: int | None = None) -> Place | None:
        """What gave a value.

        Raises:
            Lost: nothing did, or several that are not the same without their errors.
        """
        places = self._ledger.places(value, address)
        if not places:
            raise Lost("which code outside of graphs made")
        errors = [None if place is None else self.passes[place[0]].error.get(place[1]) for place in places]
        if any(not _alike(errors[0], other) for other in errors):
            raise Lost("which is bit for bit what several gave")
        return places[0]

    def _found(self, results: Mapping[str, torch.Tensor], kind: str) -> dict[str, Place]:
        """Where what the step gave is from."""
        found: dict[str, Place] = {}
        for path, value in results.items():
            try:
                place = self._source(value)
            except Lost as error:
                self.missing.append(f"the error of {kind}{path}, {error}")
                continue
            if place is not None:
                found[path] = place
        return found

    def _add_gradients(self, number: int) -> None:
        """Note what a backward pass gave for what its forward received: autograd adds up what one value gets."""
        backward = self.passes[number]
        forward = next((each for each in reversed(self.passes) if each.seen.id == backward.forward and not each.taken),
                       None)  # fmt: skip
        if forward is None:
            return
        forward.taken = True
        for source, node in zip(forward.placeholders, backward.outputs, strict=False):
            value = backward.actual.get(node) if isinstance(node, fx.Node) else None
            if isinstance(value, torch.Tensor):
                of = forward.links.get(source) or forward.seen.addresses.get(source.name)
                self._add_gradient(of, value, (number, node), backward.actual.entries[node])

    def _add_gradient(self, of: Any, value: torch.Tensor, place: Place | None, held: Any = None) -> None:
        """Add a gradient to those of a value.

        Args:
            of: the value's place, or where it lies.
            value: the gradient.
            place: what gave it; None: the loss.
            held: what stands for it in a store, if it is in one.
        """
        self._ledger.add(value, place, held=held)
        known, earlier = self._gradients.get(of, (None, None))
        before = read(known)
        if before is not None and before.numel() == value.numel() and before.dtype == value.dtype:
            total = summed(before, value, sum(each.seen.id == SUMS for each in self.passes))
            nodes = (node for node in total.graph.nodes if node.op == "placeholder")
            places = zip(nodes, (earlier, place), strict=True)
            self._follow(total, {node: source for node, source in places if source is not None})
            (node,) = self.passes[-1].outputs
            held, place = total.values[node.name], (len(self.passes) - 1, node)
        self._gradients[of] = value if held is None else held, place

    def _relative(self, errors: Sequence[Mapping[fx.Node, torch.Tensor]]) -> tuple[list[dict[fx.Node, float]], float]:
        """What errors are multiplied by to be cotangents, by pass, and the root of the sum of their squares.

        Outputs, and gradients, are relative to their size as a whole: one may be zero but for rounding.

        Args:
            errors: by pass, of what it gives to the step.
        """
        weights: list[dict[fx.Node, float]] = [{} for _ in self.passes]
        total = 0.0
        for group in self._groups:
            places = [(number, node) for number, node in group if _finite(self.passes[number].actual[node])]
            size = sum(self.passes[number].gold_squared(node) for number, node in places)
            for number, node in places:
                if size and node in errors[number]:
                    total += squared(errors[number][node]) / size
                    weights[number][node] = weights[number].get(node, 0.0) + 1 / size
        weights = [{node: weight / total for node, weight in each.items()} for each in weights] if total else weights
        return weights, total**0.5

    @torch.no_grad()
    def altered(self, ends: Ends, gold: Ends) -> dict[str, float]:
        """What float64 of the graphs that ran gives otherwise than float64 of the model, by half of the error or more.

        A pass over a graph may have changed what it computes, before anything was compiled.

        Args:
            ends: what the step gave.
            gold: what it gives in float64.

        Returns:
            Path → the difference over the right value, by the norm.
        """
        found: dict[str, float] = {}
        sides = (self.outputs, ends.outputs, gold.outputs), (self.gradients, ends.gradients, gold.gradients)
        for places, had, right in sides:
            for path, (number, node) in places.items():
                if path not in right or right[path].numel() != had[path].numel():
                    continue
                wanted = right[path].double().reshape(-1)
                apart = float((self.passes[number].gold(node).reshape(-1) - wanted).norm())
                size = float(wanted.norm()) or 1.0
                own = had[path].double().reshape(-1) - wanted
                if apart > 0.5 * float(own.norm()) and apart > ROUNDED * torch.finfo(had[path].dtype).eps * size:
                    found[path] = apart / size
        return found

    @torch.no_grad()
    def remaining(self, mended: Collection[Name]) -> float:
        """The share of :attr:`error` that remains where some values are right for what they received.

        Args:
            mended: names of values that were seen.
        """
        results: list[dict[fx.Node, Any]] = []
        for each in self.passes:
            given = {node: results[number][source].reshape(each.actual[node].shape)
                     for node, (number, source) in each.links.items() if source in results[number]}  # fmt: skip
            results.append(_mended(each, given, mended))
        errors = [
            ChainMap(
                {node: value - each.gold(node) for node, value in changed.items() if is_floating(value)}, each.error
            )
            for each, changed in zip(self.passes, results, strict=True)
        ]
        return self._relative(errors)[1] / self.error


def add_to(cotangents: Cotangents, node: fx.Node, value: torch.Tensor) -> None:
    """Add a cotangent to those of a node."""
    before = cotangents.get(node)
    cotangents[node] = value if before is None else before + value.reshape(before.shape)


def _mended(run: Pass, given: Mapping[fx.Node, Any], mended: Collection[Name]) -> dict[fx.Node, Any]:
    """What else a pass gives where values are mended, with the errors of all others added where they arose.

    Args:
        given: the inputs that are not what they were.
        mended: names of values.
    """
    had: dict[fx.Node, Any] = {}
    changed = dict(given)
    outputs, last = set(run.outputs), run.last_uses
    for node in run.seen.graph.nodes:
        if node.op == "output":
            continue
        had[node] = run.actual[node] if node in run.actual else computed_of(node, had, run.seen)
        right = (run.seen.id, node.name) in mended
        if right or any(source in changed for source in taken_by(node)):
            value = computed_of(node, had | changed, run.seen)
            if not isinstance(value, Unknown):
                changed[node] = value if right or node not in run.erring else value + run.residual(node, had)
        for source in last.get(node, ()):
            if source not in outputs:
                del had[source]
                changed.pop(source, None)
    return {node: value for node, value in changed.items() if node in outputs}


def _alike(mine: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether errors of equal values are the same, but for rounding in float32."""
    if mine is other or mine is None or other is None:
        return mine is other
    if not is_floating(mine):
        return torch.equal(mine.reshape(-1), other.reshape(-1))
    difference = mine.double().reshape(-1) - other.double().reshape(-1)
    return bool(difference.norm() <= 1e-3 * mine.double().norm())


def _finite(value: Any) -> bool:
    return is_floating(value) and bool(value.isfinite().all())
