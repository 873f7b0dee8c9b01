"""Whether the decompositions that a backend asks for compute what they replace.

A backend's graph has them applied. So a wrong one shows in none of its operations: each is right for what it received.
Each operator that has one is computed in float64 on what it receives in a run by torch of the graph before, and so is
its decomposition.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.artifacts.localization import Culprit
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.localize.judging.evaluation import UNSET, Unknown, exactly, value_of
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.localize.runs.regions import Seen, computes
from inductor_debug.stages.localize.searching.pieces import attempted
from inductor_debug.stages.localize.sources import place_of
from inductor_debug.stages.sides.rounded import in_float64

LIMIT = 1e-6
"""Distance over size from which two computations in float64 are not the same; some decompositions have constants, or
intermediate values, of float32."""


@dataclass(frozen=True)
class _Worst:
    """Where a decomposition is farthest from its operator."""

    index: list[int]
    got: Any
    expected: Any


def wrong_decompositions(case: Case, adapter: AcceleratorAdapter, over: Callable[[], bool]) -> list[Culprit]:
    """Operators whose decomposition computes something else, one for each that differs in what it is given.

    Args:
        case: run once by torch as it stands; left as found.
        adapter: whose decompositions are looked at.
        over: asked before each operator; once it is true, no further one is looked at.
    """
    table = dict(adapter.decompositions or {})
    if not table:
        return []
    reference = reference_run(case, None)
    found: list[Culprit] = []
    known: set[str] = set()
    for seen, node in [(run, node) for run in reference.seen for node in run.graph.nodes]:
        if over():
            break
        if node.target not in table or node.target in UNSET or not computes(node):
            continue
        told = f"{node.target} {fx.map_arg((node.args, node.kwargs), _told)}"
        if told in known:
            continue
        known.add(told)
        worst = attempted(partial(_compared, seen, node, table[node.target]))
        if isinstance(worst, _Worst):
            place = place_of(seen.id, [node], reference.origins[seen.id])
            found.append(Culprit(place, "operation", None, None, seen.call, worst.index, worst.got, worst.expected,
                                 ["in its decomposition, in float64"]))  # fmt: skip
    return found


def _told(node: fx.Node) -> str:
    value = node.meta.get("val")
    return f"{value.dtype} {list(value.shape)} {value.stride()}" if isinstance(value, torch.Tensor) else str(value)


def _compared(seen: Seen, node: fx.Node, decomposition: Callable[..., Any]) -> _Worst | None:
    """Where the two differ; None where they do not.

    Raises:
        Unknown: one of them can't be computed.
    """
    results: list[Any] = []

    def both(target: Any, args: Any, kwargs: Any) -> Any:
        right = exactly(target, args, kwargs)
        results.extend([right, in_float64(decomposition, args, kwargs)])
        return right

    known: Mapping[str, Any] = ChainMap(seen.values, seen.inputs)  # type: ignore[arg-type]
    values = {taken: known.get(taken.name, Unknown(f"{taken.name} was not seen")) for taken in node.all_input_nodes}
    value_of(node, values, seen.owner, both)
    right, decomposed = results
    if decomposed is None or decomposed[2] is NotImplemented:
        raise Unknown(f"the decomposition of {node.target} can't be computed")
    for expected, got in zip(pytree.tree_leaves(right), pytree.tree_leaves(decomposed[2]), strict=False):
        worst = _worst(expected, got)
        if worst is not None:
            return worst
    return None


def _worst(expected: Any, got: Any) -> _Worst | None:
    tensors = isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor)
    if not tensors or not expected.numel() or not expected.is_floating_point() or expected.shape != got.shape:
        return None
    apart = torch.where(expected == got, 0.0, (expected - got.double()).abs())
    apart = torch.where(expected.isnan() & got.isnan(), 0.0, apart).nan_to_num(nan=torch.inf)
    size = expected[expected.isfinite()].abs()
    if float(apart.max()) <= LIMIT * (float(size.max()) if size.numel() else 0.0):
        return None
    index = [int(place) for place in torch.unravel_index(apart.argmax(), apart.shape)]
    return _Worst(index, float(got[tuple(index)]), float(expected[tuple(index)]))
