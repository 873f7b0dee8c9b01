"""Faults that initial weights and a mask of ones hide are defects with the weights and inputs that a run has."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from inductor_debug.models.build import build_case
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.kerneldiff.diff import diff

BERT = {"_target_": "inductor_debug.models.bert.build", "vocabulary": 60, "layers": 1, "width": 32, "heads": 2,
        "intermediate": 64, "positions": 16}  # fmt: skip
NET = {"_target_": "inductor_debug.models.torchvision_models.build", "name": "resnet18", "num_classes": 10}


def fill(path: str, **values: float) -> Callable[[nn.Module], None]:
    def plant(module: nn.Module) -> None:
        for name, value in values.items():
            getattr(module.get_submodule(path), name).detach().fill_(value)

    return plant


def replaced(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[nn.Module], None]:
    """An input that a backend reads wrongly."""

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs | ({name: change(kwargs[name])} if name in kwargs else {})

    return lambda module: module.register_forward_pre_hook(before, with_kwargs=True)  # type: ignore[return-value]


FAULTS = {
    "bias dropped": (BERT, fill("encoder.layer.0.intermediate.dense", bias=0.0)),
    "layer norm's affine part dropped": (BERT, fill("embeddings.LayerNorm", weight=1.0, bias=0.0)),
    "padding mask ignored": (BERT, replaced("attention_mask", torch.ones_like)),
    "token types shifted": (BERT, replaced("token_type_ids", lambda types: types.roll(1, 1))),
    "running statistics ignored": (NET, fill("layer1.0.bn1", running_mean=0.0, running_var=1.0)),
    "batch norm's affine part dropped": (NET, fill("layer4.1.bn2", weight=1.0, bias=0.0)),
}


def verdict(build: dict[str, Any], plant: Callable[[nn.Module], None], *, exercise: bool) -> str:
    case = made(build, exercise=exercise)
    faulty = copy.deepcopy(case.module)
    plant(faulty)
    torch._dynamo.reset()
    return diff(faulty, case.args, case.kwargs, backend="aot_eager", reference=case.module, perturbations=2).verdict


def made(build: dict[str, Any], *, exercise: bool) -> Case:
    return build_case(ModelConfig("model", build, sequence_length=12, image_size=32, exercise=exercise))


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.slow] * (FAULTS[fault][0] is NET)) for fault in FAULTS]
)
def test_a_fault_shows_in_an_exercised_model_alone(fault: str) -> None:
    build, plant = FAULTS[fault]
    assert verdict(build, plant, exercise=True) == "defect"
    assert verdict(build, plant, exercise=False) == "exact"


def test_a_pass_tells_what_stays_constant() -> None:
    found = {}
    for exercise in (True, False):
        case = made(NET, exercise=exercise)
        torch._dynamo.reset()
        found[exercise] = diff(case.module, case.args, backend="aot_eager").message
    assert "hold one value" not in found[True]
    assert "80 of 102 weights hold one value throughout (bn1.weight, bn1.bias, layer1.0.bn1.weight, …)" in found[False]


class Spare(nn.Module):
    """One layer that nothing calls, one whose weight is read through a view alone, and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.spare, self.viewed = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ self.viewed.weight[:, :4].detach().t() * self.get_buffer("scale")
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_pass_tells_what_nothing_reads(mode: str) -> None:
    torch._dynamo.reset()
    module = Spare().train(mode == "training")
    found = diff(module, (torch.randn(2, 3, 4),), backend="aot_eager", mode=mode)
    assert found.verdict in ("exact", "within_floor")
    assert "2 of 8 weights are read by no operation (spare.weight, spare.bias)" in found.message


def test_a_module_that_does_not_run_while_it_is_watched_still_has_gold() -> None:
    class Shy(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.dtype == torch.float64 and torch._C._len_torch_dispatch_stack():
                raise RuntimeError("watched")
            return super().forward(x)

    torch._dynamo.reset()
    found = diff(Shy(4, 4), (torch.randn(2, 4),), backend="aot_eager", draws=1)
    assert found.gold_error is None and found.rows[0].floor_rms is not None
    assert "read by no operation" not in found.message
