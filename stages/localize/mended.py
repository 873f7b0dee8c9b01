"""A run of the case in which the operations at fault are mended, and its verdict.

AOTAutograd's graphs are cut around those operations. They are computed in float64 from what the backend gave them, and
rounded once; the rest is compiled by the backend, in the pieces that are left. So what shows only when operations are
fused across a cut is mended too. An input at fault is given contiguous.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from inductor_debug.models.torch_private import OpOverload, pytree
from inductor_debug.stages.artifacts.localization import Culprit, MendedRun
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.execution import Executor
from inductor_debug.stages.backends.parted import Parted, runs_of
from inductor_debug.stages.localize.accounting.frozen import Name
from inductor_debug.stages.localize.accounting.links import Ends
from inductor_debug.stages.localize.judging.evaluation import exactly
from inductor_debug.stages.localize.messages import share
from inductor_debug.stages.localize.searching.pieces import attempted


@dataclass(frozen=True)
class Judged:
    """What a comparison says of a run by an adapter.

    Attributes:
        verdict: as of a run; ``not established: `` and why where there is none.
        ratio: error over floor of what is worst; None where there is none.
    """

    verdict: str
    ratio: float | None


Judge = Callable[[AcceleratorAdapter], Judged]


HELD = 0.1
"""How far an estimate may be from a run, as a share of the final error, for the others to be told."""


class Mended(AcceleratorAdapter):
    """A backend that is not given some of the operations.

    Args:
        inner: the backend.
        operations: graph id and node of each.

    Attributes:
        done: those that there were in what was compiled.
    """

    def __init__(self, inner: AcceleratorAdapter, operations: Collection[Name]) -> None:
        self.inner, self.operations = inner, set(operations)
        self.name, self.roundoff = inner.name, inner.roundoff
        self.decompositions = inner.decompositions
        self.done: set[Name] = set()

    @property
    def executor(self) -> Executor:
        return self.inner.executor

    def compile(
        self, gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor]
    ) -> Callable[..., Sequence[torch.Tensor]]:
        graph = self.record(gm).id
        nodes = {(graph, node.name): node for node in gm.graph.nodes if node.op in ("call_function", "placeholder")}
        here = self.operations & set(nodes)
        self.done |= here
        if not here:
            return self.inner.compile(gm, example_inputs)
        for node in (nodes[name] for name in here if nodes[name].op == "placeholder"):
            node.meta["val"] = node.meta["val"].contiguous()  # as which it is laid out
        runs = runs_of(gm, lambda node: (graph, node.name) not in here)
        return Parted(gm, runs, self.inner, lambda piece: _Wide(piece).run)

    def storage_rounding(self) -> AcceleratorAdapter | None:
        return self.inner.storage_rounding()


class _Wide(fx.Interpreter):
    """Computes each operation in float64 from what it receives, in the dtypes and strides that torch gives."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        like = super().call_function(target, args, kwargs)
        if not isinstance(target, OpOverload) or target.is_view:
            return like
        exact = exactly(target, args, kwargs)
        return pytree.tree_map(_rounded, like, exact)


def _rounded(like: Any, exact: Any) -> Any:
    if isinstance(like, torch.Tensor) and isinstance(exact, torch.Tensor) and like.is_floating_point():
        return like.copy_(exact)
    return like


def mended_run(adapter: AcceleratorAdapter, operations: Sequence[Name], judge: Judge) -> MendedRun:
    """The verdict of a run with some operations mended, or in words why there is none."""
    names = [" ".join(name) for name in operations]
    mended = Mended(adapter, operations)
    found = attempted(lambda: judge(mended))
    left = [" ".join(name) for name in operations if name not in mended.done]
    if left:
        found = f"AOTAutograd's graph has no {', '.join(left)}"
    if isinstance(found, str):
        return MendedRun(names, f"not established: {found}", None)
    return MendedRun(names, found.verdict, found.ratio)


def estimated(
    culprits: Sequence[Culprit],
    remains: Mapping[Name, float],
    runs: Sequence[MendedRun],
    floors: float | None,
    ends: Ends,
) -> tuple[list[Culprit], list[str]]:
    """Culprits with the estimate of what remains without each, and why there are none, in words.

    An estimate leaves the errors of all other operations as they were. A run with one operation mended says whether
    that holds, where the step gives one result: of several the run tells of the worst, and the estimate of all.

    Args:
        culprits: what is at fault.
        remains: operation → the share of the final error that remains.
        runs: with operations mended.
        floors: error over floor of what is worst in the run as it was; None where that is not known.
        ends: what the step gives.
    """
    given = {f"{item.place.graph} {item.place.node}": item.place for item in culprits}
    alone = len(ends.outputs) + len(ends.gradients) == 1 and floors is not None and 0 < floors < math.inf
    for run in (run for run in runs if alone and len(run.operations) == 1):
        place = given.get(run.operations[0])
        guess = None if place is None else remains.get((place.graph, place.node))
        measured = math.nan if run.ratio is None else float(run.ratio) / (floors or 1.0)
        if place is not None and guess is not None and abs(measured - guess) > HELD:  # never where it is no number
            told = f"of {place.node} it was {share(guess)}, and a run with it right had {share(measured)}"
            return list(culprits), [f"the estimate of what remains without one operation: {told}"]
    return [replace(item, remains=remains.get((item.place.graph, item.place.node))) for item in culprits], []
