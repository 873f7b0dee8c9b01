"""What objects hold is read as it is stored: no code of their classes runs."""

import dataclasses
from typing import Any

import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.nested import map_tensors
from inductor_debug.models.references import tensors_in
from inductor_debug.stages.numerics.structure import flatten


@dataclasses.dataclass
class Refusing:
    """Like a configuration of transformers whose layers differ in a field: reading that field raises."""

    table: torch.Tensor = dataclasses.field(default_factory=lambda: torch.ones(2))
    heads: int = 4
    unset: Any = dataclasses.field(init=False)

    def __getattribute__(self, name: str) -> Any:
        if name in ("heads", "table"):
            raise RuntimeError(f"{name} differs from layer to layer")
        return super().__getattribute__(name)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Refusing()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_a_case_whose_module_holds_a_dataclass_that_refuses_runs() -> None:
    case = Case("refusing", Model(), (torch.zeros(2),), {}, "inference", torch.float32, torch.device("cpu"))
    assert torch.equal(case.run().output, torch.ones(2))
    assert list(tensors_in({"": case.module})) == ["config.table"]


def test_a_dataclass_that_refuses_is_rebuilt_and_compared_by_what_is_stored() -> None:
    doubled = map_tensors(lambda tensor: tensor * 2, Refusing())
    assert vars(doubled)["table"].tolist() == [2, 2] and vars(doubled)["heads"] == 4
    assert torch.equal(flatten(doubled)["table"], torch.full((2,), 2.0))
