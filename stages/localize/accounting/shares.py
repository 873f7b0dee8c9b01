"""How much of the final error each value's own error makes, by frozen residuals.

δ = seen − float64 of what the value's region received is what an operation did wrong, whatever came in. To first order
the error of the outputs is the sum of what the δ make of it. So the error itself, as a cotangent, goes back through the
graph, and ⟨cotangent, δ⟩ / ⟨error, error⟩ is the share of that value. Each operation is differentiated by itself,
half-way between what it received and what it receives in gold: in float64, but for products on a CPU, which multiply
errors and cotangents in float32 (:mod:`stages.localize.accounting.linear`). Autograd over the whole graph would stop in
silence at values that were detached, or that have no gradient.

Masks and indices jump, and have no derivative. Where they are others than gold's, what that makes of the operation that
takes them is a share of its own: that of a *decision*.

The sum of all shares is the *closure*: 1, as far as first order and what was seen account for the error. The error is
that of all outputs relative to their size, and that of all gradients.
"""

import operator
from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.localize.accounting.derivatives import NoDerivative, derivative
from inductor_debug.stages.localize.accounting.frozen import Cotangents, Name, Step, add_to
from inductor_debug.stages.localize.accounting.linear import LINEAR
from inductor_debug.stages.localize.accounting.passes import Pass, computed_of
from inductor_debug.stages.localize.judging.evaluation import Unknown, is_floating, taken_by
from inductor_debug.stages.localize.judging.noise import narrow, pieces_of
from inductor_debug.stages.localize.runs.kept import Kept
from inductor_debug.stages.localize.runs.regions import is_view, looked_at

FEW = 64
"""Elements that are looked at first."""


@dataclass
class Shares:
    """Of the error of a step's outputs and gradients.

    Attributes:
        own: value → share of its own error.
        decisions: mask or index → share of its being another than gold's.
        missing: what could not be accounted for, in words.
    """

    own: dict[Name, float] = field(default_factory=dict)
    decisions: dict[Name, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def closure(self) -> float:
        """The sum of all shares."""
        return sum(self.own.values()) + sum(self.decisions.values())

    def of(self, name: Name) -> float | None:
        """Of a value, its decisions included; None where it has none."""
        found = [part[name] for part in (self.own, self.decisions) if name in part]
        return sum(found) if found else None


@torch.no_grad()
def shares_of(step: Step) -> Shares:
    """Shares of the values that were seen in a step whose outputs have an error."""
    found = Shares()
    cotangents: list[Cotangents] = [Kept(step.store) for _ in step.passes]
    for number in reversed(range(len(step.passes))):
        each = step.passes[number]
        wanted = cotangents.pop()
        _backward(each, step.weights[number], wanted, found)
        for node, (earlier, source) in each.links.items():
            if node in wanted:
                add_to(cotangents[earlier], source, wanted.pop(node))
    return found


def fewest(step: Step, shares: Shares, target: float) -> list[Name]:
    """The fewest values that bring the error down to a share of itself where they are right for what they received.

    They are taken by their shares, the largest first, and how many it takes is found by computing the step again.

    Args:
        target: the share of the error that may remain.
    """
    ranked = sorted(shares.own, key=lambda name: -(shares.of(name) or 0.0))
    enough, few = len(ranked), 0
    while few < enough:
        middle = (few + enough) // 2
        if step.remaining(ranked[:middle]) <= target:
            enough = middle
        else:
            few = middle + 1
    return ranked[:enough]


def _backward(run: Pass, weights: Mapping[fx.Node, float], cotangents: Cotangents, found: Shares) -> None:
    """Take cotangents from a pass's outputs to its inputs.

    Args:
        run: the pass.
        weights: of the errors of what it gives to the step.
        cotangents: what later passes want of it; afterwards what it wants of its inputs.
        found: the shares of what lies between are added.
    """
    inside: dict[fx.Node, torch.Tensor] = {}
    parts: dict[fx.Node, dict[int, torch.Tensor]] = {}  # of operations with several results
    for node in run.backwards():
        if node in weights:
            add_to(inside, node, run.error[node].double().mul_(weights[node]))
        if node in cotangents:
            add_to(inside, node, cotangents.pop(node))
        cotangent = inside.pop(node).double() if node in inside else None
        if cotangent is not None and node in run.erring:
            name = run.seen.id, node.name
            share = sum(float(mine.dot(own.double())) for mine, own in pieces_of(cotangent, run.residual(node)))
            found.own[name] = found.own.get(name, 0.0) + share
        if node.target is operator.getitem:
            if cotangent is not None:
                place: Any = node.args[1]
                parts.setdefault(taken_by(node)[0], {})[place] = cotangent
            continue
        wanted = parts.pop(node, {}) if cotangent is None else {0: cotangent}
        if not wanted:
            continue
        if not any(source in run.touched for source in taken_by(node)):
            continue
        if node in run.lost:
            continue
        why = run.actual.entries.get(node)
        if isinstance(why, Unknown):
            found.missing.append(f"{run.seen.id} {node.name} ({node.target}): {why}")
            continue
        try:
            gradients = _differentiated(run, node, wanted, found)
        except (NoDerivative, Unknown) as error:
            found.missing.append(f"{run.seen.id} {node.name} ({node.target}): {error}")
            continue
        for source, value in gradients.items():
            outside = source.op == "placeholder"
            add_to(cotangents if outside else inside, source, narrow(value) if outside else value)
    for node in run.placeholders:
        if node in weights:
            add_to(cotangents, node, run.error[node].double() * weights[node])


def _differentiated(run: Pass, node: fx.Node, wanted: Mapping[int, torch.Tensor], found: Shares) -> dict[fx.Node, Any]:
    """What cotangents become for what an operation takes; what jumps in it gets its share.

    An operation may decide by a number that it takes, as the gradient of ReLU does: it has no derivative by that.
    """
    taken = taken_by(node)
    source = looked_at(node)
    if source is not None and run.is_floating(source):
        return derivative(node, {source: run.stand_in(source)}, run.seen, wanted, run.touched)
    between = _HalfWay(run)
    if node.target in LINEAR and all(map(run.is_floating, taken)):
        cotangent = wanted[0].reshape(run.shape(node))  # of another graph's input it may have another shape
        return LINEAR[node.target].gradients(node, between, run.shape, cotangent, run.touched)
    decided = [source for source in taken if source in run.error and not run.is_floating(source)]
    gradients = derivative(node, between, run.seen, wanted, run.touched)
    jumping = [source for source in taken if source in run.error and source not in decided
               and not (source in gradients and _has_any(gradients[source]))]  # fmt: skip
    _jumps(run, node, [*decided, *jumping], wanted, found)
    if jumping:
        between.update({source: run.gold(source) for source in jumping})
        gradients = derivative(node, between, run.seen, wanted, run.touched)
    return gradients


class _HalfWay(UserDict[fx.Node, Any]):
    """Values half-way between a run and gold, where they are asked for."""

    def __init__(self, run: Pass) -> None:
        super().__init__()
        self.run = run

    def __missing__(self, node: fx.Node) -> Any:
        value = self.data[node] = self.run.half_way(node)
        return value


def _has_any(gradient: torch.Tensor) -> bool:
    """Whether anything is not zero; most often it is seen at once."""
    return bool(gradient.reshape(-1)[:FEW].any()) or bool(gradient.any())


def _jumps(
    run: Pass, node: fx.Node, sources: Sequence[fx.Node], wanted: Mapping[int, torch.Tensor], found: Shares
) -> None:
    """Shares of what an operation takes that is not gold's and by which it has no derivative."""
    values = {source: run.actual[source] for source in taken_by(node)} if sources else {}
    for source in sources:
        after = {**values, source: run.gold(source)}
        results = [computed_of(node, each, run.seen) for each in (values, after)]
        values = after
        if any(isinstance(result, Unknown) for result in results):
            continue
        was, would_be = (pytree.tree_leaves(result) for result in results)
        changes = {place: torch.where(was[place] == would_be[place], 0.0, was[place] - would_be[place])
                   for place in wanted if is_floating(was[place])}  # fmt: skip
        share = sum(float((wanted[place].reshape(change.shape) * change).sum()) for place, change in changes.items())
        name = run.seen.id, _made_by(source).name
        found.decisions[name] = found.decisions.get(name, 0.0) + share


def _made_by(node: fx.Node) -> fx.Node:
    """Of a view, what it looks at."""
    while is_view(node):
        (node, *_) = taken_by(node)
    return node
