"""Each operation of a graph that ran, against float64 of what it received.

Comparing every value with an undisturbed reference tells nothing: behind one fault nearly all of them differ, and in a
clean backward graph many do. So float64 starts anew from what each kernel received. Of a value that was seen, the
*region* is what computed it: the operations since the values that other kernels left in memory. Its error is theirs
alone.

A kernel that leaves several values may go on with the one in its registers, which was not rounded, or with the one in
memory. A value is wrong only if it is by both readings. So what comes after a fault in the same kernel is not blamed.

The floor is that of the verdict on outputs (:mod:`stages.kerneldiff.other_rounding`): the same region computed rightly
in its own dtypes and rounded otherwise, :class:`stages.sides.rounded.Rounded`.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from inductor_debug.models.torch_private import OpOverload, pytree, schema_of
from inductor_debug.stages.localize.evaluation import (
    Evaluate,
    Unknown,
    as_it_is,
    exactly,
    rounded_by,
    taken_by,
    value_of,
)
from inductor_debug.stages.localize.slopes import slope_limit
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FLOORS, over_floors
from inductor_debug.stages.sides.rounded import Rounded

FEW = 64
"""Elements below which one draw of the noise says little; of fewer, several are taken."""

DRAWS = 8
"""Draws of the noise for a value of few elements, and before any is called a defect."""


@dataclass(frozen=True)
class Deviation:
    """What an operation does that it should not: an error of its own, whatever it receives.

    Attributes:
        value: as the backend computed it from what it received.
        error: that less float64 of the same; None where the value is not floating.
    """

    value: torch.Tensor
    error: torch.Tensor | None

    def of(self, right: Any) -> Any:
        """What the operation gives where ``right`` is right; of that dtype, but for values that are not floating."""
        if self.error is None or not isinstance(right, torch.Tensor) or not right.is_floating_point():
            return self.value
        error = self.error.reshape(right.shape)
        wrong = torch.where(error.isfinite(), right.double() + error, self.value.reshape(right.shape).double())
        return wrong.to(right.dtype)


Deviations = Mapping[str, Deviation]
"""By name of the node."""

NOTHING: Deviations = {}


@dataclass
class Seen:
    """One run of a graph.

    Attributes:
        id: ``g0.forward``, ``g0.backward``, ….
        graph: its nodes have fake values in ``meta["val"]``.
        owner: what holds the graph's constants.
        inputs: placeholder → what it was given.
        values: node → what was seen of it, a tensor; a node that is not here was not seen.
        kernels: node → ``kernel:handle`` that made it, where that is known.
        call: how many-th run of the graph in the step.
    """

    id: str
    graph: fx.Graph
    owner: torch.nn.Module
    inputs: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, torch.Tensor] = field(default_factory=dict)
    kernels: Mapping[str, str] = field(default_factory=dict)
    call: int = 0


@dataclass(frozen=True)
class Region:
    """What made one seen value.

    Attributes:
        node: whose value it is.
        members: the nodes that computed it, ``node`` last; views among them.
        received: nodes whose values the members take from outside, seen or given.
    """

    node: fx.Node
    members: tuple[fx.Node, ...]
    received: tuple[fx.Node, ...]

    @property
    def operations(self) -> tuple[fx.Node, ...]:
        """The members that compute."""
        return tuple(node for node in self.members if computes(node))


@dataclass
class Local:
    """How far a seen value is from float64 of what its region received.

    Attributes:
        region: what was compared.
        row: the seen value (test) against one of other rounding (reference), with gold from float64; None where that
            could not be computed.
        slope: ⟨seen − exact, exact⟩ / ⟨exact, exact⟩; None where there is none.
        slope_noise: the largest size of that of the other roundings.
        slope_nearest: the larger of that of float64 rounded to nearest, and of torch's own kernels.
        unchecked: why there is no row; empty where there is one.
    """

    region: Region
    row: TensorComparison | None = None
    slope: float | None = None
    slope_noise: float | None = None
    slope_nearest: float = 0.0
    unchecked: str = ""

    @property
    def wrong(self) -> bool:
        return self.row is not None and self.row.verdict == "defect"


def is_steady(local: Local) -> bool:
    """Whether an error is always in one direction, and no noise; see :mod:`stages.localize.slopes`."""
    row = local.row
    if (
        row is None
        or local.wrong
        or local.slope is None
        or not row.elements
        or row.error_rms is None
        or not row.reference_rms
    ):
        return False
    return abs(local.slope) > slope_limit(
        torch.finfo(getattr(torch, row.dtype)).eps / 2,
        row.elements,
        relative=row.error_rms / row.reference_rms,
        noise=local.slope_noise or 0.0,
        nearest=local.slope_nearest,
        operations=len(local.region.operations),
    )


def computes(node: fx.Node) -> bool:
    """Whether a node computes numbers: no view, no size, no taking apart of several results."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    if isinstance(node.target, OpOverload):
        returned = schema_of(node.target).returns
        views = any(item.alias_info is not None and not item.alias_info.is_write for item in returned)
        return not views and node.target is not torch.ops.aten.reshape.default
    return isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


class Replay:
    """Compares what was seen in one run of a graph.

    Args:
        seen: the run.
        seed: of the other roundings.
        factor: error over floor above which a value is wrong.

    Attributes:
        regions: of each seen value that was computed, in the graph's order.
    """

    def __init__(self, seen: Seen, *, seed: int = 0, factor: float = 4.0) -> None:
        self.seen, self.seed, self.factor = seen, seed, factor
        self._order = {node: index for index, node in enumerate(seen.graph.nodes)}
        found = (self.region(node, whole=True) for node in seen.graph.nodes
                 if node.name in seen.values and node.op == "call_function")  # fmt: skip
        self.regions = [region for region in found if region.operations]
        tensors = (item for item in pytree.tree_leaves(dict(seen.inputs)) if isinstance(item, torch.Tensor))
        self._device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        self._rounding = rounded_by(Rounded(seed, self._device))

    def region(self, node: fx.Node, *, whole: bool) -> Region:
        """What made a seen value.

        Args:
            whole: from what its kernel received; False: from what was seen last, of the same kernel too.
        """
        seen = self.seen
        kernel = seen.kernels.get(node.name) if whole else None
        members, received, open_still = {node}, set(), taken_by(node)
        while open_still:
            source = open_still.pop()
            other = source.name in seen.values and (kernel is None or seen.kernels.get(source.name) != kernel)
            if source.op == "placeholder" or other:
                received.add(source)
            elif source not in members:
                members.add(source)
                open_still += taken_by(source)
        place = self._order.__getitem__
        return Region(node, tuple(sorted(members, key=place)), tuple(sorted(received, key=place)))

    def locals(self) -> Iterator[Local]:
        """Compare each seen value; in the graph's order."""
        with torch.no_grad():
            for region in self.regions:
                yield self._judged(region)

    def _judged(self, region: Region) -> Local:
        local = self.compared(region)
        if not local.wrong:
            return local
        shorter = self.region(region.node, whole=False)
        if shorter.received == region.received:
            return local
        return self.compared(shorter) if shorter.operations else replace(local, row=None, unchecked="a view")

    def values(self, region: Region, evaluate: Evaluate, deviations: Deviations = NOTHING) -> dict[fx.Node, Any]:
        """What a region's members compute from what it received, where some of them deviate."""
        values: dict[fx.Node, Any] = {}
        for node in region.received:
            known = self.seen.inputs if node.op == "placeholder" else self.seen.values
            values[node] = known[node.name] if node.name in known else Unknown(f"{node.name} was not seen")
        for node in region.members:
            values[node] = value_of(node, values, self.seen.owner, evaluate)
            if node.name in deviations:
                values[node] = deviations[node.name].of(values[node])
        return values

    @torch.no_grad()
    def deviation(self, region: Region) -> Deviation:
        """Of a value that was compared."""
        value = self.seen.values[region.node.name]
        exact = self.values(region, exactly)[region.node]
        floating = value.is_floating_point() and exact.is_floating_point()
        return Deviation(value, value.double().reshape(exact.shape) - exact if floating else None)

    @torch.no_grad()
    def compared(self, region: Region, deviations: Deviations = NOTHING) -> Local:
        """A seen value against float64 of its region, in which some members may deviate."""
        node, value = region.node, self.seen.values[region.node.name]
        try:
            exact = self.values(region, exactly, deviations)[node]
            rounded = self.values(region, self._rounding, deviations)[node]
        except Unknown as error:
            return Local(region, unchecked=str(error))
        if not isinstance(exact, torch.Tensor):
            return Local(region, unchecked=f"{node.target} gives no tensor")
        exact = exact.double() if exact.is_floating_point() else exact
        if exact.numel() != value.numel():
            return Local(region, unchecked=f"the buffer has shape {list(value.shape)}, not {list(exact.shape)}")
        if rounded.dtype != value.dtype:
            return Local(region, unchecked=f"the buffer holds {value.dtype}, not {rounded.dtype}")
        value = value.reshape(exact.shape)
        local = Local(region, self._row(node.name, rounded, value, exact))
        if value.is_floating_point():
            local.slope, local.slope_noise = _slope(value, exact), abs(_slope(rounded, exact) or 0.0)
        if local.wrong or value.numel() < FEW or is_steady(local):
            self._redraw(local, value, exact, deviations)
        return local

    def _row(self, name: str, rounded: torch.Tensor, value: torch.Tensor, exact: torch.Tensor) -> TensorComparison:
        return compare_tensors(rounded, value, gold=exact, path=name, factor=self.factor, worst=1)

    def _value(self, region: Region, evaluate: Evaluate, deviations: Deviations) -> Any:
        return self.values(region, evaluate, deviations)[region.node]

    def _redraw(self, local: Local, value: torch.Tensor, exact: torch.Tensor, deviations: Deviations) -> None:
        """Judge by the noise of several draws, and of eager: one may be small by luck, or on a branch's other side."""
        assert local.row is not None
        draws = [
            self._value(local.region, rounded_by(Rounded(self.seed + number, self._device)), deviations)
            for number in range(DRAWS)
        ]
        eager = self._value(local.region, as_it_is, deviations)
        if value.is_floating_point():
            local.slope_noise = max(abs(_slope(draw, exact) or 0.0) for draw in draws)
            local.slope_nearest = max(abs(_slope(item, exact) or 0.0) for item in (eager, exact.to(value.dtype)))
        local.row = judged_by_draws(local.row, value, exact, draws, eager, self.factor)


def judged_by_draws(
    row: TensorComparison,
    value: torch.Tensor,
    exact: torch.Tensor,
    draws: Sequence[torch.Tensor],
    eager: torch.Tensor,
    factor: float,
) -> TensorComparison:
    """A row judged anew by several right computations that round otherwise, and by torch's own.

    The floor is the RMS of their RMS errors, and the largest of their largest, neither below torch's own error. Where
    one of them jumps, as behind a comparison with zero, others may: an element of which a draw is off by ``factor``
    floors is right up to ``factor`` times that. A number that is not floating is right if a draw has it.

    Args:
        row: of the seen value, judged by one draw.
        value, exact: the seen value, and float64; of one shape.
        draws: in the dtype of ``value``; ``eager`` too.
        factor: error over floor above which the value is a defect.
    """
    if not value.is_floating_point():
        known = value == exact
        for draw in (*draws, eager):
            known |= value == draw
        return row if not bool(known.all()) else replace(row, verdict="within_floor", bound="floor_max")
    if row.bound not in FLOORS or row.floor_rms is None:
        return row
    noise = [(draw.double() - exact).abs_() for draw in draws]
    each = [(float(item.square().mean().sqrt()), float(item.max())) for item in noise]
    least = max(min(rms for rms, _ in each), 0.0)
    quiet = [both for both in each if both[0] <= factor * least] or each
    rms = (sum(part**2 for part, _ in quiet) / len(quiet)) ** 0.5
    largest = max(top for _, top in quiet)
    roundoff = torch.finfo(value.dtype).eps / 2
    own = (eager.double() - exact).abs_()
    rms = max(rms, _rms(own), roundoff * _rms(exact))
    largest = max(largest, float(own.max()), roundoff * float(exact.abs().max()))
    error = (value.double() - exact).abs_()
    reach = torch.stack(noise).amax(0)
    jumped = reach > factor * largest if len(quiet) < len(each) else torch.zeros_like(reach, dtype=torch.bool)
    error = torch.where(jumped & (error <= factor * reach), 0.0, error)
    ratio, bound = over_floors(_rms(error), float(error.max()), rms, largest)
    return replace(row, verdict="defect" if ratio > factor else "within_floor", bound=bound, ratio=ratio,
                   floor_rms=rms, floor_max=largest)  # fmt: skip


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())


def _slope(value: torch.Tensor, exact: torch.Tensor) -> float | None:
    """⟨value − exact, exact⟩ / ⟨exact, exact⟩, in float64; None where it is no number."""
    flat = exact.detach().reshape(-1)
    size = float(flat.dot(flat))
    found = float((value.detach().reshape(-1).double() - flat).dot(flat)) / size if size > 0 else float("nan")
    return found if abs(found) < float("inf") else None
