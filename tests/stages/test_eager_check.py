"""The eager step before the first stage: what it says of a model that does not run, and what it leaves to stages."""

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.eager_check import built_case, check_eager
from inductor_debug.stages.settings import ReferenceConfig, Settings


class Model(nn.Module):
    """Raises what it is told to, at its own line."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.error = error

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None, scale: float = 1.0) -> torch.Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        x = torch.dropout(self.norm(self.linear(x)), 0.5, self.training)
        if self.error is not None:
            raise self.error
        return x * scale


class Inverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x)


class Detached(nn.Module):
    """Runs forward, and can't be trained: what backward needs is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x * self.weight).exp()
        z = y.sum()
        y.detach().zero_()
        y.add_(1)
        return z + y.square().sum() * 0 if y.requires_grad else z


def case_of(module: nn.Module, mode: str = "inference", dtype: torch.dtype = torch.float32) -> Case:
    module.train(mode == "training")
    x = torch.ones(4, 4, dtype=dtype)
    return Case("mine", module.to(dtype), (x,), {}, mode, dtype, torch.device("cpu"))


def settings_of(case: Case, **build: Any) -> Settings:
    build = {"_target_": "my_nets.build", **build}
    return Settings(ModelConfig("mine", build, batch_size=3), dtype=str(case.dtype).removeprefix("torch."))


@pytest.mark.parametrize(
    "error",
    [ValueError("You have to specify mask"), AttributeError("'NoneType' object has no attribute 'shape'"),
     AssertionError(), TypeError("bad"), IndexError("index out of range in self"), NotImplementedError("later")],
)  # fmt: skip
def test_a_model_that_raises_is_a_mistake_with_what_was_made_and_what_to_type(error: Exception) -> None:
    case = case_of(Model(error))
    with pytest.raises(ConfigurationError) as raised:
        check_eager(case, settings_of(case, input_shapes={}))
    text = str(raised.value)
    assert text.startswith(f"model=mine: Model's own eager forward raised {type(error).__name__}: {error or 'nothing'}")
    assert re.search(r"at \S+test_eager_check.py:\d+: raise self.error\n", text)
    assert "inputs made: x float32 [4, 4]\n" in text and "not given, of what forward takes: mask, scale\n" in text
    wants = "mask" in str(error) or "None" in str(error)
    assert ("Try: '+model.build.input_shapes.mask=[3,128]'" in text) == wants
    assert ("Try: '+model.build.input_shapes.x=[4,4]' with another shape" in text) != wants
    assert "model.inputs=FILE.safetensors" in text and raised.value.__cause__ is error


@pytest.mark.parametrize("said", ["group_size is 3", "group_size can't be None"])
def test_of_a_configuration_the_field_that_the_error_names_is_told_and_no_input_that_it_does_not(said: str) -> None:
    case = case_of(Model(ValueError(said)))
    case.module.config = SimpleNamespace(to_dict=lambda: {"width": 4, "group_size": 3})
    with pytest.raises(ConfigurationError) as raised:
        check_eager(case, settings_of(case, input_shapes={}))
    assert "or '+model.build.overrides.group_size=VALUE' with another value" in str(raised.value)
    assert "input_shapes.mask" not in str(raised.value)


def test_a_long_error_and_a_builder_without_shapes() -> None:
    case = case_of(Model(ValueError("word " * 1000)))
    with pytest.raises(ConfigurationError) as raised:
        check_eager(case, settings_of(case))
    assert len(str(raised.value)) < 1200 and "as my_nets.build returns them" in str(raised.value)


def test_the_backward_is_looked_at_in_training_alone() -> None:
    check_eager(case_of(Detached()), settings_of(case_of(Detached())))
    case = case_of(Detached(), "training")
    with pytest.raises(ConfigurationError, match=r"eager step \(forward, loss and backward\) raised RuntimeError"):
        check_eager(case, settings_of(case))


def test_an_operator_without_the_dtype_says_the_dtype() -> None:
    case = case_of(Inverse(), dtype=torch.float16)
    with pytest.raises(ConfigurationError, match="Try: dtype=float32, or"):
        check_eager(case, settings_of(case))


@pytest.mark.parametrize(
    "error", [MemoryError("no"), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_memory_is_no_mistake(error: Exception) -> None:
    case = case_of(Model(error))
    with pytest.raises(type(error)) as raised:
        check_eager(case, settings_of(case))
    assert raised.value is error


def test_nothing_is_judged_where_eager_is_not_the_reference() -> None:
    case = case_of(Model(ValueError("never seen")))
    check_eager(case, replace(settings_of(case), reference=ReferenceConfig(backend="aot_eager")))
    meta = case_of(Model(ValueError("never seen")))
    meta.device = torch.device("meta")
    check_eager(meta, settings_of(meta))


def raising() -> Any:
    """A builder of models with a fault."""
    return {}["absent"]


def exhausting() -> Any:
    raise MemoryError("no")


def test_a_builder_that_raises_is_a_mistake_and_memory_is_none() -> None:
    def context(name: str) -> StageContext:
        return StageContext(Settings(ModelConfig("mine", {"_target_": f"{__name__}.{name}"})), MemoryArtifacts())

    with pytest.raises(ConfigurationError) as raised:
        built_case(context("raising"))
    assert str(raised.value).startswith(f"model=mine: {__name__}.raising raised KeyError: 'absent'\n  at ")
    assert "test_eager_check.py:" in str(raised.value) and 'return {}["absent"]' in str(raised.value)
    with pytest.raises(MemoryError):
        built_case(context("exhausting"))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_the_case_and_the_generators_are_left_as_found(mode: str) -> None:
    case = case_of(Model(), mode)
    before, drawn = {name: tensor.clone() for name, tensor in case.module.state_dict().items()}, torch.get_rng_state()
    first = case.run().output
    check_eager(case, settings_of(case))
    assert torch.equal(torch.get_rng_state(), drawn) and not hasattr(case.module, "calls")
    assert all(torch.equal(tensor, before[name]) for name, tensor in case.module.state_dict().items())
    assert all(parameter.grad is None for parameter in case.module.parameters())
    assert torch.equal(case.run().output, first)
