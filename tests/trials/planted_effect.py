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
    """Keeps what nodes give; in float64 where asked."""

    def __init__(self, gm: fx.GraphModule, *, wide: bool = False, keep: bool = True) -> None:
        super().__init__(gm)
        self.wide, self.keep = wide, keep
        self.values: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if self.keep:
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


def _copies(inputs: Sequence[Any]) -> list[Any]:
    return [item.clone() if isinstance(item, Tensor) else item for item in inputs]


class Effects:
    """Of faults in one graph, on inputs in the case's dtype.

    Args:
        right: the graph without a fault.
        inputs: left as they are; a graph may write into what it is given.
    """

    @torch.no_grad()
    def __init__(self, right: fx.GraphModule, inputs: Sequence[Any]) -> None:
        self.right, self.inputs = right, inputs
        ours = _Run(right)
        self.result = ours.run(*_copies(inputs))
        self.gold = _Run(right, wide=True, keep=False).run(*(_wide(item) for item in _copies(inputs)))
        names = [node.name for node in right.graph.nodes if node.op == "placeholder"]
        self.values = ours.values | dict(zip(names, inputs, strict=True))

    @torch.no_grad()
    def of(self, wrong: fx.GraphModule, node: str, output: int | None) -> Effect:
        """The effect of what was put behind ``node`` to make ``wrong``."""
        theirs = _Run(wrong)
        faulty = theirs.run(*_copies(self.inputs))
        outputs = max((_floors(*three) for three in zip(self.result, faulty, self.gold, strict=True)), default=0.0)
        seen, local = self.values[node], self._local(node)
        if output is not None:
            seen, local = seen[output], local[output]
        added = len(wrong.graph.nodes) > len(self.right.graph.nodes)
        return Effect(_floors(seen, theirs.values[_last_added(self.right, wrong)] if added else seen, local), outputs)

    def _local(self, name: str) -> Any:
        """Float64 of what a node received."""
        node = next(item for item in self.right.graph.nodes if item.name == name)
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda source: self.values[source.name])
        args, kwargs = torch.utils._pytree.tree_map(_wide, (args, kwargs))
        return node.target(*args, **kwargs)  # type: ignore[operator]


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
