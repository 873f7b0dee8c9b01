"""One step in float64 beside what it really had: what each operation did wrong, and what remains if some is mended.

δ = seen − float64 of what the value's region received is what an operation did wrong, whatever came in. With every δ
added where it arose, float64 gives what the step gave. Without some of them it gives what the step would have given.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.localize.evaluation import Unknown, exactly, value_of
from inductor_debug.stages.localize.replay import Seen

Name = tuple[str, str]
"""Graph id and node."""

Cotangents = dict[fx.Node, torch.Tensor]


@dataclass
class Pass:
    """One run of a graph.

    Attributes:
        seen: the run.
        actual: every value of it in float64, as it was seen; what was not seen is computed from what was.
        gold: every value as it would be without any error.
        residual: what the operations since the last values that were seen did wrong.
        saved: how many of the last results are for the backward graph.
    """

    seen: Seen
    actual: dict[fx.Node, Any] = field(default_factory=dict)
    gold: dict[fx.Node, Any] = field(default_factory=dict)
    residual: dict[fx.Node, torch.Tensor] = field(default_factory=dict)

    saved: int = 0

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
        self.cotangents, self.error = self._errors([each.actual for each in self.passes])

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
            if isinstance(first.gold[node], torch.Tensor):
                given[name] = first.gold[node]
        first.saved = len(saved)
        return given

    def _errors(self, values: Sequence[Mapping[fx.Node, Any]]) -> tuple[list[Cotangents], float]:
        """The errors of each pass's outputs as cotangents, and the root of the sum of their squares.

        Outputs, and gradients, are relative to their size as a whole: one may be zero but for rounding.
        """
        cotangents: list[Cotangents] = []
        total = 0.0
        for each, actual in zip(self.passes, values, strict=True):
            outputs = each.outputs[: len(each.outputs) - each.saved]
            pairs = {node: (actual[node], each.gold[node]) for node in outputs if isinstance(node, fx.Node)}
            pairs = {node: sides for node, sides in pairs.items() if all(map(_finite, sides))}
            size = sum(float(gold.square().sum()) for _, gold in pairs.values())
            errors = {node: mine - gold for node, (mine, gold) in pairs.items()} if size else {}
            total += sum(float(error.square().sum()) for error in errors.values()) / (size or 1.0)
            cotangents.append({node: error / size for node, error in errors.items()})
        if total:
            cotangents = [{node: error / total for node, error in each.items()} for each in cotangents]
        return cotangents, total**0.5

    @torch.no_grad()
    def remaining(self, mended: Collection[Name]) -> float:
        """The share of :attr:`error` that remains where some values are right for what they received.

        Args:
            mended: names of values that were seen.
        """
        values: list[dict[fx.Node, Any]] = []
        for number, each in enumerate(self.passes):
            given: dict[str, Any] = {}
            if number:
                first = self.passes[0]
                results = first.outputs[len(first.outputs) - first.saved :]
                given = {node.name: values[0][result] for node, result in zip(each.placeholders, results, strict=False)
                         if isinstance(result, fx.Node)}  # fmt: skip
            values.append(_with_errors(each, given, mended))
        return self._errors(values)[1] / self.error


def _with_errors(run: Pass, given: Mapping[str, Any], mended: Collection[Name]) -> dict[fx.Node, Any]:
    """Every value of a pass, its errors added where they arose, but for those that are mended."""
    values: dict[fx.Node, Any] = {}
    for node in run.seen.graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            values[node] = given.get(node.name, run.actual[node])
            continue
        value = computed_of(node, values, run.seen)
        if isinstance(value, Unknown):
            value = run.actual[node]
        elif node in run.residual and (run.seen.id, node.name) not in mended:
            value = value + run.residual[node]
        values[node] = value
    return values


def _forward(seen: Seen, gold: Mapping[str, Any]) -> Pass:
    """Every value of a run and of gold, in float64; what was seen is taken as it is.

    Args:
        gold: what gold has for some of the inputs; for the others, what the run had.
    """
    run = Pass(seen)
    for node in seen.graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            run.actual[node] = wide(seen.inputs.get(node.name))
            run.gold[node] = wide(gold.get(node.name, seen.inputs.get(node.name)))
            continue
        known = wide(seen.values[node.name]) if node.name in seen.values else None
        run.gold[node] = computed_of(node, run.gold, seen)
        computed = computed_of(node, run.actual, seen)
        run.actual[node] = computed if known is None else known
        if known is None:
            continue
        if isinstance(computed, torch.Tensor) and computed.numel() == known.numel():
            run.actual[node] = known = known.reshape(computed.shape)
            if known.is_floating_point():
                run.residual[node] = torch.where(known == computed, 0.0, known - computed)  # of infinities too
        elif isinstance(computed, Unknown):
            run.gold[node] = known if isinstance(run.gold[node], Unknown) else run.gold[node]
    return run


def computed_of(node: fx.Node, values: Mapping[fx.Node, Any], seen: Seen) -> Any:
    try:
        return wide(value_of(node, values, seen.owner, exactly))
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
    wide = value.double().reshape(mine.shape)
    return bool((mine - wide).norm() <= 0.1 * wide.norm()) or not bool(wide.isfinite().all())


def _finite(value: Any) -> bool:
    return is_floating(value) and bool(value.isfinite().all())


def is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
