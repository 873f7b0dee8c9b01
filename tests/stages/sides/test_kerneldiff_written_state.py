"""What a step writes into, wherever it is, and memory that tensors share: compared, and the same in gold."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from written_state import Base, Doubled, Plain, Scaled, compared, verdict_of
from wrong_adapters import DropsCopies

from inductor_debug.stages.backends.adapter import AcceleratorAdapter


class Spoils(AcceleratorAdapter):
    """Right results, and the parameters are changed behind them."""

    name = "spoils"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            results = gm(*args)
            with torch.no_grad():
                for argument in args:
                    if isinstance(argument, nn.Parameter):
                        argument.mul_(1.5)
            return results

        return run


class ViewOfBuffer(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.zeros(12, 8))
        self.register_buffer("upper", self.whole[:6])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.whole[:6].copy_(x)
        return self.linear(self.upper)


class ListOfViews(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cache = torch.zeros(2, 6, 8)
        self.layers = [self.cache[0], self.cache[1]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layers[0].copy_(x)
        return self.linear(self.cache.sum(0))


class BufferAsInput(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.ones(6, 8))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.add_(x)
        return self.linear(self.cache)


@pytest.mark.parametrize("kind", [ViewOfBuffer, ListOfViews, BufferAsInput])
def test_gold_shares_the_memory_that_the_model_shares(kind: type[Base]) -> None:
    for adapter, status in ((Scaled, "passed"), (Doubled, "failed")):
        module, x = kind(), torch.randn(6, 8)
        args = (x, module.cache) if kind is BufferAsInput else (x,)
        result = compared(module, *args, adapter=adapter)
        assert result.status == status, result.message


class Average(Base):
    def __init__(self) -> None:
        super().__init__()
        self.average = nn.Parameter(torch.zeros(8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.average.mul_(0.9).add_(x.mean(0))
        return self.linear(x)


class PlainCache(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cache = torch.zeros(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.copy_(x)
        return self.linear(x)


class Store:
    def __init__(self) -> None:
        self.keys = torch.zeros(6, 8)


class FillsStore(Base):
    def forward(self, x: torch.Tensor, store: Store) -> torch.Tensor:
        store.keys.copy_(x)
        return self.linear(x)


@pytest.mark.parametrize(
    ("module", "args", "kind", "path"),
    [
        (Average(), (), "parameter", "average (written)"),
        (PlainCache(), (), "buffer", "cache"),
        (FillsStore(), (Store(),), "input", "store.keys"),
    ],
    ids=["parameter", "attribute", "object"],
)
def test_a_lost_write_is_a_defect_wherever_it_goes(module: Base, args: tuple[Any, ...], kind: str, path: str) -> None:
    kept = compared(module, torch.ones(6, 8), *args, adapter=Scaled)
    assert kept.status == "passed" and verdict_of(kept, kind, path) == "exact", kept.message
    lost = compared(module, torch.ones(6, 8), *args, adapter=DropsCopies)
    assert lost.status == "failed" and verdict_of(lost, kind, path) == "defect", lost.message


def test_a_parameter_that_the_backend_alone_changes_is_a_defect() -> None:
    result = compared(Plain(), torch.ones(6, 8), adapter=Spoils)
    assert result.status == "failed" and verdict_of(result, "parameter", "linear.weight (written)") == "defect"
