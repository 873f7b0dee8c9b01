"""The comparison as a function: its verdicts, what it leaves as it was, and which runs it pays for."""

import gc
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from inductor_debug import AcceleratorAdapter, diff
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.diff import compared
from inductor_debug.stages.kerneldiff.standard import standard_of
from inductor_debug.stages.settings import Settings


class Scaled(AcceleratorAdapter):
    """Its results are too large by ``by``."""

    name = "scaled"

    def __init__(self, by: float) -> None:
        self.by = by

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out if out is None else out * (1 + self.by) for out in gm(*args))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.last(self.norm(self.first(x)).relu())}


def net() -> tuple[Net, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    return Net(), (torch.randn(6, 8),)


@pytest.mark.parametrize("backend", ["aot_eager", Scaled(0.0), lambda gm, example_inputs: lambda *args: gm(*args)])
def test_what_is_right_passes_in_training_too(backend: Any) -> None:
    module, args = net()
    found = diff(module, args, backend=backend, mode="training")
    kinds = {row.kind for row in found.rows}
    assert found.verdict in ("exact", "within_floor") and not found.failed, str(found)
    assert kinds == {"output", "loss", "gradient", "buffer"} and found.message in str(found)


@pytest.mark.parametrize(("dtype", "by"), [(None, 1e-3), (torch.bfloat16, 0.3), (torch.float64, 1e-3)])
def test_what_is_wrong_is_a_defect_in_the_dtype_that_is_asked_for(dtype: torch.dtype | None, by: float) -> None:
    module, args = net()
    found = diff(module.eval(), args, backend=Scaled(by), dtype=dtype)
    assert found.verdict == "defect" and found.failed[0].path == "logits"
    assert found.failed[0].dtype == str(dtype or torch.float32).removeprefix("torch.")


def test_the_model_its_inputs_and_the_generators_are_left_as_found() -> None:
    module, args = net()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}, args[0].clone()
    state = torch.get_rng_state()
    diff(module.train(), args, backend=Scaled(0.1), mode="training", dtype=torch.bfloat16)
    assert all(torch.equal(tensor, before[0][name]) for name, tensor in module.state_dict().items())
    assert torch.equal(args[0], before[1]) and torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_module_that_is_wrong_itself_is_told_by_one_that_is_right() -> None:
    module, args = net()
    right, _ = net()

    class Wrong(Net):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": super().forward(x)["logits"] + 0.1}

    module.__class__ = Wrong
    assert diff(module.eval(), args, backend="aot_eager").verdict == "exact"
    assert diff(module.eval(), args, backend="aot_eager", reference=right.eval()).verdict == "defect"


def test_a_module_that_is_wrong_itself_for_other_inputs_is_told_by_one_that_is_right() -> None:
    class Right(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x) * 3

    class Wrong(Right):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * torch.where(x[0, 0] == -1, 1.0, 1.001)

    x = torch.randn(8, 8)
    x[0, 0] = -1.0  # the first draw is right
    found = diff(Wrong(), (x,), backend="aot_eager", reference=Right())
    assert found.verdict == "defect" and found.draw > 1, found.message


def test_a_module_that_is_wrong_itself_once_it_is_trained_is_told_by_one_that_is_right() -> None:
    class Right(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(8, 8)
            self.register_buffer("before", self.layer.weight.detach().clone())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.layer(x))

    class Wrong(Right):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * torch.where((self.layer.weight == self.before).all(), 1.0, 1.01)

    options = {"mode": "training", "steps": 3, "draws": 1, "learning_rate": 0.1}
    x = torch.randn(8, 8)
    found = diff(Wrong().train(), (x,), backend="aot_eager", reference=Right().train(), **options)
    assert {row.kind for row in found.failed} == {"parameter"}, found.message
    assert not diff(Wrong().train(), (x,), backend="aot_eager", **options).failed


@pytest.mark.parametrize("last", [True, False])
def test_gold_is_let_go_of_where_nothing_needs_it_after_the_first_draw(last: bool) -> None:
    module, args = net()
    golds: list[int] = []

    def doubles() -> list[torch.Tensor]:
        gc.collect()
        return [item for item in gc.get_objects() if type(item) is torch.Tensor and item.dtype == torch.float64]

    kept = doubles()  # of other tests
    others = {id(item) for item in kept}

    def told(text: str) -> None:
        if text.startswith("draw 2"):
            gc.collect()
            held = [item for item in doubles() if id(item) not in others]
            golds.append(sum(tensor.shape == parameter.shape for tensor in held for parameter in module.parameters()))

    options = {} if last else {"sensitivity": True}
    found = diff(module.train(), args, backend="aot_eager", mode="training", draws=2, progress=told, **options)
    assert not found.failed and len(golds) == 1
    assert (golds[0] == 0) == last


def test_gold_that_was_given_up_judges_again_where_it_is_asked_to() -> None:
    """As localization asks, where a later call overwrote what the first had left."""
    module, args = net()
    case = Case.of(module.eval(), args, {}, "inference")
    context = StageContext(Settings(ModelConfig("net")), MemoryArtifacts(), {"case": case}, lambda text: None)
    config = KernelDiffConfig(draws=1, plots=False, store_baseline=False)
    standard = standard_of(context, config)
    for by, last in ((1e-7, True), (1e-3, False)):
        assert standard.given_up is not last
        found = compared(context, config, standard, lambda by=by: compile_case(case, Scaled(by)), last=last)
    assert found.verdict == "defect" and all(row.floor_rms for row in found.failed), found.message


def test_a_side_that_raises_is_not_established() -> None:
    module, args = net()

    def broken(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        raise RuntimeError("no such instruction: vmul.q7")

    found = diff(module.eval(), args, backend=broken)
    assert found.verdict == "not_established" and "vmul.q7" in found.message and not found.rows
    assert found.error is not None and found.error["side"] == "test"


def test_wrong_arguments_are_told() -> None:
    module, args = net()
    with pytest.raises(ConfigurationError, match="factor"):
        diff(module, args, backend="aot_eager", factor=-1.0)
    with pytest.raises(ConfigurationError, match="steps"):
        diff(module, args, backend="aot_eager", steps=2)
    with pytest.raises(TypeError, match="factr"):
        diff(module, args, backend="aot_eager", factr=2.0)
    with pytest.raises(ConfigurationError, match="nosuch"):
        diff(module, args, backend="nosuch")


@pytest.mark.parametrize(
    ("by", "options", "runs"),
    [
        (0.0, {}, []),
        (1.2e-7, {}, ["running the reference again"]),
        (
            1e-3,
            {},
            ["rounding the reference otherwise", "moving float64's weights up and down", "running the reference again"],
        ),
        (1e-3, {"perturbations": 0}, ["running the reference again"]),
        (1e-3, {"rtol": 1e-2}, []),
    ],
)
def test_a_run_is_paid_for_only_where_a_review_asks(by: float, options: dict[str, Any], runs: list[str]) -> None:
    module, args = net()
    told: list[str] = []
    diff(module.eval(), args, backend=Scaled(by), progress=told.append, draws=1, **options)
    sides = ("reference: running it", "gold: running the reference in float64", "test: running the compiled model",
             "comparing")  # fmt: skip
    assert list(dict.fromkeys(re.split(r",| \(", text)[0] for text in told if text not in sides)) == runs
