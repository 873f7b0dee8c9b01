"""Results that are objects of a user's own classes, and models that can't be copied or are never compiled."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from written_state import Base, Doubled, Plain, Scaled, compared, verdict_of
from wrong_adapters import DropsCopies

from inductor_debug.models.case import Case
from inductor_debug.stages.numerics.comparison import compare
from inductor_debug.stages.numerics.structure import flatten


class Layer:
    def __init__(self, keys: torch.Tensor, owner: Any) -> None:
        self.keys, self.owner, self.length, self.kind = keys, owner, 3, "plain"


class Cache:
    def __init__(self, *keys: torch.Tensor) -> None:
        self.layers = [Layer(item, self) for item in keys]
        self.settings = {"window": None}


def test_objects_that_hold_tensors_are_entered() -> None:
    leaves = flatten({"logits": torch.ones(1), "cache": Cache(torch.zeros(2), torch.ones(2))})
    layer = ("keys", "length", "kind")
    assert list(leaves) == ["logits", *(f"cache.layers[{index}].{name}" for index in range(2) for name in layer)]
    same, other = Cache(torch.zeros(2)), Cache(torch.ones(2))
    assert compare(same, Cache(torch.zeros(2))).verdict == "exact"
    assert [row.path for row in compare(same, other).failed] == ["layers[0].keys"]


class ReturnsCache(Base):
    def forward(self, x: torch.Tensor, cache: Cache) -> tuple[torch.Tensor, Cache]:
        cache.layers[0].keys.copy_(x)
        return self.linear(x), cache


def test_an_object_that_was_given_and_is_returned_is_looked_into() -> None:
    result = compared(ReturnsCache(), torch.ones(6, 8), Cache(torch.zeros(6, 8)), adapter=Scaled)
    assert verdict_of(result, "output", "output[1].layers[0].keys") == "exact", result.message
    result = compared(ReturnsCache(), torch.ones(6, 8), Cache(torch.zeros(6, 8)), adapter=DropsCopies)
    assert verdict_of(result, "output", "output[1].layers[0].keys") == "defect", result.message


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (torch.device("cpu"), torch.device("meta")),
        (slice(1, 2), slice(1, 3)),
        (range(3), range(4)),
        (frozenset({1}), frozenset({2})),
        (2**70, 2**70 + 1),
        (numpy.arange(3.0), numpy.arange(3.0) + 1),
        (torch.float32, torch.float64),
        (None, 0),
    ],
    ids=str,
)
def test_values_with_an_equality_are_compared_by_it(value: Any, other: Any) -> None:
    assert compare((torch.ones(1), value), (torch.ones(1), value)).verdict == "exact"
    assert compare((torch.ones(1), value), (torch.ones(1), other)).verdict == "defect"


def test_numpy_scalars_are_numbers() -> None:
    x, nan = torch.ones(1), numpy.float32("nan")
    assert compare((x, nan), (x, nan)).verdict == "exact"
    assert compare(numpy.float32(1), numpy.float32(1 + 1e-7)).verdict == "within_tolerance"
    assert compare(numpy.float64(1), 1.0).verdict == "exact"
    assert compare(numpy.int32(3), numpy.int32(4)).verdict == "defect"


def test_numbers_are_compared_where_the_default_device_holds_none() -> None:
    x = torch.ones(1)
    with torch.device("meta"):
        assert compare((x, 1.0), (x, 1.0)).verdict == "exact"
        assert compare((x, numpy.arange(3)), (x, numpy.arange(1, 4))).verdict == "defect"


def test_a_set_of_tensors_is_not_established() -> None:
    tensors = {torch.ones(2)}
    assert compare((torch.ones(1), tensors), (torch.ones(1), tensors)).verdict == "not_established"


class Hidden:
    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def test_slots_are_entered() -> None:
    assert list(flatten({"cache": Hidden(torch.ones(2))})) == ["cache.tensor"]
    assert compare(Hidden(torch.ones(2)), Hidden(torch.ones(2))).verdict == "exact"
    assert [row.path for row in compare([Hidden(torch.ones(2))], [Hidden(torch.zeros(2))]).failed] == [
        "output[0].tensor"
    ]


def test_an_object_that_can_not_be_looked_into_is_not_established_even_where_it_is_the_same() -> None:
    hidden = threading.Lock()
    assert compare((torch.ones(1), hidden), (torch.ones(1), hidden)).verdict == "not_established"


@dataclasses.dataclass
class Result:
    first: torch.Tensor
    second: Any = dataclasses.field(init=False, default=None)


class ReturnsResult(Base):
    def forward(self, x: torch.Tensor) -> Result:
        result = Result(self.linear(x).sign())
        result.second = self.linear(x)
        return result


def test_fields_that_no_constructor_takes_are_compared() -> None:
    assert verdict_of(compared(ReturnsResult(), torch.ones(6, 8), adapter=Doubled), "output", "second") == "defect"


class Locked(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_a_model_that_can_not_be_copied_is_compared_without_gold() -> None:
    result = compared(Locked(), torch.ones(6, 8), adapter=Doubled)
    assert verdict_of(result, "output", "output") == "defect"
    assert "pickle" in result.artifacts["kerneldiff/diagnosis.json"].gold_error["message"]


class Uncompiled(Base):
    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def test_a_backend_that_was_given_no_graph_is_not_exercised() -> None:
    result = compared(Uncompiled(), torch.ones(6, 8), adapter=Doubled)
    reason = "scaled compiled no graph, so all of the model ran in eager"
    assert result.message.splitlines() == [
        f"The numbers were not put to the test: {reason}.",
        f"not_exercised: {reason}; one draw of the inputs: there is no input to vary; 1 operation ran in eager outside "
        "of all graphs",
    ]


class ChangesSettings(Scaled):
    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            torch.set_default_dtype(torch.bfloat16)
            torch.use_deterministic_algorithms(True)
            return gm(*args)

        return run


def test_settings_that_a_backend_changes_are_put_back_and_told() -> None:
    result = compared(Plain(), torch.ones(6, 8), adapter=ChangesSettings)
    assert torch.get_default_dtype() == torch.float32 and not torch.are_deterministic_algorithms_enabled()
    assert "torch.set_default_dtype (torch.float32 before, torch.bfloat16 after)" in result.message


_memory = torch.zeros(6, 8)


class SharesOutside(nn.Module):
    """Memory that is shared through a global, which a copy of the module is not."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", _memory)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.copy_(x)
        return _memory.mul(3.0)


def test_gold_of_a_model_that_has_no_copy_decides_nothing() -> None:
    for adapter in (Scaled, Doubled):
        result = compared(SharesOutside(), torch.randn(6, 8), adapter=adapter)
        output = verdict_of(result, "output", "output")
        assert output == ("exact" if adapter is Scaled else "not_established"), result.message


@dataclasses.dataclass(slots=True)
class Slots:
    x: torch.Tensor
    count: int = 0


class TakesSlots(Base):
    def forward(self, given: Slots) -> torch.Tensor:
        return self.linear(given.x)


class Raising(Mapping[str, Any]):
    """A mapping whose values can't be had, as those of a configuration that is not resolved."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(["missing"])

    def __len__(self) -> int:
        return 1


class Counting(dict[str, Any]):
    """A dict with state beside its items."""

    calls = 0


class Configured(Base):
    def __init__(self) -> None:
        super().__init__()
        self.settings, self.counting = Raising(), Counting()
        self.linear.weight.calls = 0
        self.register_buffer("fixed", torch.ones(1, dtype=torch.complex128).expand(3))
        self.register_buffer("shape", torch.empty(3, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counting.calls += 1
        self.linear.weight.calls += 1
        return self.linear(x) * (self.counting.calls + self.linear.weight.calls)


@pytest.mark.parametrize("repeats", [1, 3])
def test_models_with_state_in_odd_places_are_put_back_and_compared(repeats: int) -> None:
    assert compared(TakesSlots(), Slots(torch.ones(6, 8)), adapter=Scaled, repeats=repeats).status == "passed"
    module = Configured()
    result = compared(module, torch.ones(6, 8), adapter=Scaled, repeats=repeats)
    assert result.status == "passed", result.message
    assert set(result.artifacts["kerneldiff/outputs.csv"]["kind"]) == {"output"}
    assert (module.counting.calls, module.linear.weight.calls) == (0, 0)


class Unregistered(Base):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = [nn.Linear(8, 8)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden[0](self.linear(x))


def test_gradients_of_what_is_no_parameter_of_the_module_are_compared() -> None:
    module = Unregistered()
    module.hidden[0].weight.grad = torch.ones(8, 8)
    case = Case("small", module.train(), (torch.ones(6, 8),), {}, "training", torch.float32, torch.device("cpu"))
    first, second = case.run(), case.run()
    assert torch.equal(first.gradients["hidden.0.weight"], second.gradients["hidden.0.weight"])
    assert module.hidden[0].weight.grad.eq(1).all()
