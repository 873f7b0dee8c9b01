"""Places in which a fault can be planted: parameters, operations of the forward pass, operations of the backward pass.

Operations are found by running a step and watching what is dispatched. Products and normalizations are preferred, for
there a kernel is most likely to be wrong; a model without any has faults in whatever gives floating-point numbers.
"""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.draws import is_operator
from inductor_debug.models.torch_private import (
    UnseenMode,
    number_of_last_node,
    number_of_running_node,
    schema_of,
)
from inductor_debug.stages.graphs.sources import calls_of

FAULTS = ("weight", "activation", "gradient")

PREFERRED = ("mm", "mv", "dot", "bmm", "linear", "conv", "norm", "attention")
"""Parts of the names of products and normalizations, forward and backward."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Site:
    """Where a fault is planted.

    Attributes:
        fault: one of :data:`FAULTS`: what is multiplied by 1 + the error.
        place: path of the parameter, or of the module whose operation it is; of a backward operation the module whose
            forward it belongs to. "" where that is not known.
        operation: the ATen operation; "" for a weight.
        source: FILE:LINE of the operation, or of the forward operation that it belongs to; "" where it is not known.
        index: among the operations of its direction, in the order in which they run.
    """

    fault: str
    place: str
    operation: str = ""
    source: str = ""
    index: int = 0

    def __str__(self) -> str:
        where = self.place or self.source
        if not self.operation:
            return where
        return f"{self.operation}{' for' if self.fault == 'gradient' else ' in'} {where}" if where else self.operation

    @property
    def preferred(self) -> bool:
        """Whether it is a product or a normalization."""
        return any(part in self.operation for part in PREFERRED)


class Operations(UnseenMode):
    """Numbers the operations of one step, forward and backward apart.

    Only those count that give new floating-point numbers: a view, or a write in place, is none.

    Args:
        module: of the step; to be called through :meth:`forward`.
        wrong: gives an operation's wrong result from its direction, its number, the operation and its right result.
    """

    def __init__(self, module: torch.nn.Module, wrong: Callable[[str, int, Any, Any], Any]) -> None:
        super().__init__()
        self.module, self.wrong = module, wrong
        self.inside = False
        self.counts = dict.fromkeys(("activation", "gradient"), 0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward, in which operations are those of the forward pass."""
        self.inside = True
        try:
            return self.module(*args, **kwargs)
        finally:
            self.inside = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        backward = number_of_running_node() is not None
        if not (self.inside or backward) or not _is_new(func) or _first(result) is None:
            return result
        direction = "gradient" if backward else "activation"
        self.counts[direction] += 1
        return self.wrong(direction, self.counts[direction] - 1, func, result)


def _is_new(func: Any) -> bool:
    """Whether an operator's results are memory of their own."""
    if not is_operator(func):
        return False
    return not any(found.alias_info for found in schema_of(func).returns)


def _first(result: Any) -> torch.Tensor | None:
    """An operation's first tensor, where it holds floating-point numbers."""
    results = result if isinstance(result, (tuple, list)) else [result]
    first = next((item for item in results if isinstance(item, torch.Tensor)), None)
    return first if first is not None and first.is_floating_point() and first.numel() else None


def scaled(result: Any, factor: float) -> Any:
    """An operation's result with its first tensor multiplied, in the tensor's dtype."""
    first = _first(result)
    assert first is not None
    wrong = first * factor
    return type(result)(wrong if item is first else item for item in result) if first is not result else wrong


def operation_name(func: Any) -> str:
    """``addmm`` of ``aten.addmm.default``."""
    return func.overloadpacket.__name__


class Found:
    """Operations of one step, as places for faults.

    Args:
        case: whose step it is.
    """

    def __init__(self, case: Case) -> None:
        self.sites: list[Site] = []
        self._names = {id(module): path for path, module in case.module.named_modules()}
        self._forward: dict[int, tuple[str, str]] = {}

    def note(self, direction: str, index: int, func: Any, result: Any) -> Any:
        """Note one operation; the result stays right.

        Args:
            direction, index: activation or gradient, and the operation's number in it.
            func: the operation.
            result: what it gave.
        """
        if direction == "activation":
            where = self._module(), _source()
            self._forward.setdefault(number_of_last_node(), where)
        else:
            number = number_of_running_node()
            where = self._forward.get(-1 if number is None else number, ("", ""))
        self.sites.append(Site(direction, where[0], operation_name(func), where[1], index))
        return result

    def _module(self) -> str:
        """The innermost module of the case that is on the stack."""
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                path = self._names.get(id(frame.f_locals.get("self")))
                if path is not None:
                    return path
            frame = frame.f_back  # type: ignore[assignment]
        return ""

    def of(self, fault: str) -> list[Site]:
        """Products and normalizations of one direction; all operations where it has none."""
        found = [site for site in self.sites if site.fault == fault]
        return [site for site in found if site.preferred] or found


def _source() -> str:
    """The line in the innermost function of the model, FILE:LINE."""
    calls = calls_of(sys._getframe(1))
    return f"{calls[-1].file}:{calls[-1].line}" if calls else ""


def weights(case: Case) -> list[Site]:
    """Parameters of floating-point numbers."""
    named = case.module.named_parameters()
    return [Site("weight", name) for name, tensor in named if tensor.is_floating_point() and tensor.numel()]


def spread(items: Sequence[Item], count: int, seed: str) -> list[Item]:
    """So many of the items, one drawn from each of as many equal parts, in their order."""
    count = min(count, len(items))
    draw = random.Random(seed)
    edges = [len(items) * index // count for index in range(count + 1)] if count else []
    return [items[draw.randrange(first, last)] for first, last in pairwise(edges)]
