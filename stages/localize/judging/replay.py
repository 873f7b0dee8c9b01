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

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx

from inductor_debug.stages.localize.judging.choices import settled
from inductor_debug.stages.localize.judging.evaluation import (
    UNSET,
    Both,
    Evaluate,
    Unknown,
    as_it_is,
    exactly,
    is_floating,
    rounded_by,
)
from inductor_debug.stages.localize.judging.figures import figures_of, least_figures_of
from inductor_debug.stages.localize.judging.noise import Noise, difference, narrow, slope, slope_of
from inductor_debug.stages.localize.judging.slopes import slope_limit
from inductor_debug.stages.localize.judging.sweep import NOTHING, Deviation, Deviations, Sweep
from inductor_debug.stages.localize.runs.kept import Kept, has_tensor
from inductor_debug.stages.localize.runs.regions import Region, Seen, region_of
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.formats import same_bits
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.sides.rounded import Rounded

FEW = 64
"""Elements below which one draw of the noise says little; of fewer, several are taken."""

DRAWS = 8
"""Draws of the noise for a value of few elements, and before any is called a defect."""

HELD = 1 << 25
"""Elements of values that are judged by several draws at a time."""


@dataclass
class Local:
    """How far a seen value is from float64 of what its region received.

    Attributes:
        region: what was compared.
        row: the seen value (test) against one of other rounding (reference), with gold from float64; None where that
            could not be computed.
        slope: ⟨seen − exact, exact⟩ / ⟨exact, exact⟩; None where there is none.
        slope_noise: the largest size of that of the other roundings; None where none was needed.
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
    """Whether an error is always in one direction, and no noise; see :mod:`stages.localize.judging.slopes`."""
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


class Replay:
    """Compares what was seen in one run of a graph.

    Args:
        seen: the run.
        seed: of the other roundings.
        factor: error over floor above which a value is wrong.
        known: what torch gave for some of the values, from the same inputs; bit for bit the same is right.
        without: values that are not compared.
        residuals: where errors of values are put, in float32, of regions that start from what was seen last; as long
            as there is room. None where they are not kept.

    Attributes:
        regions: of each seen value that was computed, in the graph's order.
    """

    def __init__(
        self,
        seen: Seen,
        *,
        seed: int = 0,
        factor: float = 4.0,
        known: Mapping[str, torch.Tensor] | None = None,
        without: Collection[str] = (),
        residuals: Kept[str] | None = None,
    ) -> None:
        self._residuals = residuals
        self.seen, self.seed, self.factor, self.known = seen, seed, factor, known or {}
        self._all_compared = not any(name in seen.values for name in without)
        self._order = {node: index for index, node in enumerate(seen.graph.nodes)}
        found = (self.region(node, whole=True) for node in seen.graph.nodes
                 if node.op == "call_function" and has_tensor(seen.values, node.name)
                 and node.target not in UNSET and node.name not in without)  # fmt: skip
        self.regions = [region for region in found if region.operations]
        tensors = (item for name in seen.inputs if isinstance(item := seen.inputs[name], torch.Tensor))
        self._device = next((tensor.device for tensor in tensors), torch.device("cpu"))

    def region(self, node: fx.Node, *, whole: bool) -> Region:
        """What made a seen value: see :func:`region_of`."""
        return region_of(self.seen, node, self._order, whole=whole)

    @torch.no_grad()
    def locals(self, over: Callable[[], bool] = lambda: False, *, confirmed: bool = True) -> list[Local]:
        """Compare each seen value; in the graph's order.

        Args:
            over: asked before each value; once it is true, no further one is compared.
            confirmed: whether what is wrong by one draw of the noise is judged by several; False: the first such value
                ends the comparison, unless it may be so by one that is not compared.
        """
        found = {local.region.node: local for local in self._judged(self.regions, over, confirmed=confirmed)}
        by_memory = [self.region(node, whole=False) for node, local in found.items() if local.wrong]
        by_memory = [region for region in by_memory if region.received != found[region.node].region.received]
        views = [region for region in by_memory if not region.operations]
        found |= {region.node: replace(found[region.node], row=None, unchecked="a view") for region in views}
        others = [region for region in by_memory if region.operations]
        found |= {local.region.node: local for local in self._judged(others, confirmed=confirmed)}
        return list(found.values())

    @torch.no_grad()
    def compared(self, region: Region, deviations: Deviations = NOTHING) -> Local:
        """A seen value against float64 of its region, in which some members may deviate."""
        return self._judged([region], deviations=deviations)[0]

    @torch.no_grad()
    def deviation(self, region: Region) -> Deviation:
        """Of a value that was compared."""
        value = self.seen.values[region.node.name]
        exact = Sweep(self.seen, [region], exactly).value(region)
        floating = value.is_floating_point() and exact.is_floating_point()
        return Deviation(value, value.double().reshape(exact.shape) - exact if floating else None)

    def _judged(
        self,
        regions: Sequence[Region],
        over: Callable[[], bool] = lambda: False,
        *,
        deviations: Deviations = NOTHING,
        confirmed: bool = True,
    ) -> list[Local]:
        known = {region.node for region in regions if self._is_known(region)}
        asked = [region for region in regions if region.node not in known]
        both = Both(Rounded(self.seed, self._device))
        exact = Sweep(self.seen, asked, both.exactly, deviations)
        rounded = Sweep(self.seen, asked, both.rounded, deviations)
        found: list[Local] = []
        doubtful: list[_Doubtful] = []
        for region in regions:
            if over():
                break
            if region.node in known:
                found.append(self._same(region))
                continue
            both.begin(region.operations)
            right = exact.value(region)
            clear = self._clearly_right(region, right, both)
            if clear is not None:
                rounded.skip(region)
                found.append(clear)
                continue
            local, value, gold = self._compared(region, right, rounded.value(region))
            found.append(local)
            if not confirmed and local.wrong and self._all_compared:
                break
            few = 0 < value.numel() < FEW
            if confirmed and (local.wrong or few or is_steady(local)) and local.row is not None:
                doubtful.append(_Doubtful(local, value, gold))
            if sum(item.value.numel() for item in doubtful) > HELD:
                self._redraw(doubtful, deviations)
                doubtful = []
        self._redraw(doubtful, deviations)
        return found

    def _is_by_memory(self, region: Region) -> bool:
        """Whether a region starts from what was seen last."""
        return region.kernel is None or self.region(region.node, whole=False).received == region.received

    def _is_known(self, region: Region) -> bool:
        own = self.known.get(region.node.name)
        if own is None:
            return False
        value = self.seen.values[region.node.name]
        if own.shape != value.shape or own.dtype != value.dtype:
            return False
        return bool(same_bits(own, value).all())

    def _same(self, region: Region) -> Local:
        name = region.node.name
        return Local(region, compare_tensors(self.known[name], self.seen.values[name], path=name, worst=1))

    def _clearly_right(self, region: Region, exact: object, both: Both) -> Local | None:
        """The comparison of a value that is right whatever the draw; None where it takes one."""
        node, value = region.node, self.seen.values[region.node.name]
        own = getattr(node.meta.get("val"), "dtype", None)
        if not is_floating(exact) or exact.numel() != value.numel() or own != value.dtype:
            return None
        value = value.reshape(exact.shape)
        figures = least_figures_of(value, exact.double(), both.sums, path=node.name, factor=self.factor)
        if figures is None:
            return None
        local = Local(region, figures.row, figures.slope)
        if is_steady(local):
            return None
        self._keep(region, figures.residual)
        return local

    def _keep(self, region: Region, residual: torch.Tensor) -> None:
        kept = self._residuals
        if kept is not None and not kept.store.full and self._is_by_memory(region):
            kept[region.node.name] = residual

    def _compared(self, region: Region, exact: object, rounded: object) -> tuple[Local, torch.Tensor, torch.Tensor]:
        """The comparison by one draw, the value, and float64 of it in its shape."""
        node, value = region.node, self.seen.values[region.node.name]
        why = _incomparable(node, value, exact, rounded)
        if why or not isinstance(exact, torch.Tensor) or not isinstance(rounded, torch.Tensor):
            return Local(region, unchecked=why), value, value
        value = value.reshape(exact.shape)
        exact = exact.double() if exact.is_floating_point() else settled(value, exact)
        figures = figures_of(value, rounded, exact, path=node.name, factor=self.factor)
        local = Local(region) if figures is None else Local(region, figures.row, figures.slope, figures.slope_noise)
        residual = None if figures is None else figures.residual
        if figures is None or is_steady(local):
            local.row = compare_tensors(rounded, value, gold=exact, path=node.name, factor=self.factor, worst=1)
        if figures is None and value.is_floating_point():
            error = difference(value, exact)
            local.slope, local.slope_noise = slope(error, exact), abs(slope_of(rounded, exact) or 0.0)
            residual = narrow(error)
        if residual is not None:
            self._keep(region, residual)
        return local, value, exact

    def _redraw(self, doubtful: Sequence["_Doubtful"], deviations: Deviations) -> None:
        """Judge by the noise of several draws, and of eager: one may be small by luck, or on a branch's other side."""
        for number in range(DRAWS) if doubtful else ():
            evaluate = rounded_by(Rounded(self.seed + number, self._device))
            for item, draw in self._drawn(doubtful, evaluate, deviations):
                item.noise.add(draw)
        for item, eager in self._drawn(doubtful, as_it_is, deviations):
            item.judge(eager, self.factor)

    def _drawn(
        self, doubtful: Sequence["_Doubtful"], evaluate: Evaluate, deviations: Deviations
    ) -> Iterator[tuple["_Doubtful", torch.Tensor]]:
        sweep = Sweep(self.seen, [item.local.region for item in doubtful], evaluate, deviations)
        for item in doubtful:
            drawn = sweep.value(item.local.region)
            if not isinstance(drawn, Unknown):
                yield item, drawn.reshape(item.exact.shape)


@dataclass
class _Doubtful:
    """A value that one draw does not judge, and float64 of it, of one shape."""

    local: Local
    value: torch.Tensor
    exact: torch.Tensor

    def __post_init__(self) -> None:
        self.noise = Noise(self.value, self.exact)

    def judge(self, eager: torch.Tensor, factor: float) -> None:
        """By the draws that the noise has, and by torch's own value."""
        local, value, exact = self.local, self.value, self.exact
        assert local.row is not None
        if value.is_floating_point():
            local.slope_noise = self.noise.slope
            local.slope_nearest = max(abs(slope_of(item, exact) or 0.0) for item in (eager, exact.to(value.dtype)))
        local.row = self.noise.judged(local.row, eager, factor)


def _incomparable(node: fx.Node, value: torch.Tensor, exact: object, rounded: object) -> str:
    """Why a value can't be compared; empty where it can."""
    for computed in (exact, rounded):
        if isinstance(computed, Unknown):
            return str(computed)
        if not isinstance(computed, torch.Tensor):
            return f"{node.target} gives no tensor"
        if computed.numel() != value.numel():
            return f"the buffer has shape {list(value.shape)}, not {list(computed.shape)}"
    assert isinstance(rounded, torch.Tensor)
    return "" if rounded.dtype == value.dtype else f"the buffer holds {value.dtype}, not {rounded.dtype}"
