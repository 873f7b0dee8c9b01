"""How large a planted fault is, measured by torch alone: nothing of this project is imported.

The right graph and the faulty one run on the same inputs; float64 of what a node received says how far rounding alone
may take it, its floor. An effect below :data:`UNSEEN` floors is one that no comparison can be asked to tell from noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

UNSEEN = 4.0
WIDER = (torch.float16, torch.bfloat16, torch.float32)


@dataclass
class Effect:
    """A fault's effect in floors: on the very node, and the largest on an output of its graph."""

    node: float
    outputs: float

    @property
    def unseen(self) -> bool:
        return self.node < UNSEEN and self.outputs < UNSEEN


class _Run(fx.Interpreter):
    """Keeps what nodes give; in float64 where asked. Of the node ``at`` also float64 of what it received, at once: a
    graph may write into its inputs later."""

    def __init__(self, gm: fx.GraphModule, *, wide: bool = False, at: str = "") -> None:
        super().__init__(gm)
        self.wide, self.at = wide, at
        self.values: dict[str, Any] = {}
        self.gold: Any = None

    def run_node(self, n: fx.Node) -> Any:
        if n.name == self.at:
            args, kwargs = torch.utils._pytree.tree_map(_wide, self.fetch_args_kwargs_from_env(n))
            self.gold = n.target(*args, **kwargs)  # type: ignore[operator]
        value = super().run_node(n)
        self.values[n.name] = value
        return value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if self.wide:
            args, kwargs = torch.utils._pytree.tree_map(_wide, (args, kwargs))
        return super().call_function(target, args, kwargs)


def _wide(item: Any) -> Any:
    if isinstance(item, Tensor) and item.dtype in WIDER:
        return item.double()
    return torch.float64 if isinstance(item, torch.dtype) and item in WIDER else item


def effect(
    right: fx.GraphModule, wrong: fx.GraphModule, inputs: Sequence[Any], node: str, output: int | None
) -> Effect:
    """The effect of what was put behind ``node`` of ``right`` to make ``wrong``, on inputs in the case's dtype."""
    copies = [[item.clone() if isinstance(item, Tensor) else item for item in inputs] for _ in range(3)]
    with torch.no_grad():
        ours, theirs, exact = _Run(right, at=node), _Run(wrong), _Run(right, wide=True)
        result, faulty = ours.run(*copies[0]), theirs.run(*copies[1])
        gold = exact.run(*(_wide(item) for item in copies[2]))
        outputs = max((_floors(*three) for three in zip(result, faulty, gold, strict=True)), default=0.0)
        three = ours.values[node], ours.gold
        seen, local = three if output is None else (item[output] for item in three)
        faulty = theirs.values[_last_added(right, wrong)] if len(wrong.graph.nodes) > len(right.graph.nodes) else seen
        return Effect(_floors(seen, faulty, local), outputs)


def _last_added(right: fx.GraphModule, wrong: fx.GraphModule) -> str:
    known = {item.name for item in right.graph.nodes}
    return [item.name for item in wrong.graph.nodes if item.name not in known][-1]


def _floors(right: Any, wrong: Any, gold: Any) -> float:
    """RMS of wrong − right over that of right − gold, which is at least half a unit in the last place."""
    if not isinstance(right, Tensor) or not right.numel():
        return 0.0
    if not right.is_floating_point():
        return 0.0 if torch.equal(right, wrong) else math.inf
    gold = gold.double()
    least = torch.finfo(right.dtype).eps / 2 * _rms(gold[gold.isfinite()])
    change = _rms(_difference(wrong.double(), right.double()))
    return math.inf if math.isnan(change) else change / max(_rms(_difference(right.double(), gold)), least, 1e-300)


def _difference(x: Tensor, y: Tensor) -> Tensor:
    """Of equal infinities 0."""
    return torch.where(x == y, 0.0, x - y)


def _rms(x: Tensor) -> float:
    return float(x.square().mean().sqrt()) if x.numel() else 0.0
