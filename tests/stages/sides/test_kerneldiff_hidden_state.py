"""State that no parameter, buffer or input tensor shows: it is put back, or nothing is established."""

import copy
from collections import UserDict, deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.snapshot import Snapshot
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings


class Scaled(AcceleratorAdapter):
    """Its results are too large by 30 %."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out * 1.3 if out.is_floating_point() else out for out in gm(*args))


class Cache:
    """Keys of earlier calls, as a library's cache object holds them."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []

    def update(self, key: torch.Tensor) -> torch.Tensor:
        self.keys.append(key)
        return torch.cat(self.keys, 1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
        keys = cache.update(self.key(x))
        return torch.softmax(self.query(x) @ keys.transpose(1, 2), -1) @ keys


class Counting(nn.Module):
    """Divides by how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.statistics = nn.Linear(8, 8), {"calls": [0]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.statistics["calls"][0] += 1
        return self.layer(x) / self.statistics["calls"][0]


CALLS = [0]


class CountingInAGlobal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CALLS[0] += 1
        return self.layer(x) / CALLS[0]


class OwnGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.generator = nn.Linear(8, 8), torch.Generator().manual_seed(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + torch.rand(x.shape, generator=self.generator, dtype=x.dtype)


def compared(module: nn.Module, *inputs: Any, adapter: str = "Scaled") -> StageResult:
    torch._dynamo.reset()
    case = Case("net", module.eval(), inputs, {}, "inference", torch.float32, torch.device("cpu"))
    backend = BackendConfig(adapter, adapter if adapter == "aot_eager" else f"{__name__}.{adapter}")
    context = StageContext(Settings(ModelConfig("net"), backend=backend), MemoryArtifacts(), {"case": case})
    return KernelDiffStage(KernelDiffConfig(plots=False, store_baseline=False)).run(context)


def numerics(result: StageResult) -> str:
    return result.summary["numerics"].verdict


@pytest.mark.parametrize(("adapter", "verdict"), [("Scaled", "defect"), ("aot_eager", "exact")])
def test_a_cache_object_among_the_inputs_is_as_found_on_every_side(adapter: str, verdict: str) -> None:
    cache = Cache()
    result = compared(Attention(), torch.randn(2, 5, 8), cache, adapter=adapter)
    assert (numerics(result), cache.keys) == (verdict, []), result.message


@pytest.mark.parametrize(("adapter", "verdict"), [("Scaled", "defect"), ("aot_eager", "exact")])
def test_a_nested_counter_is_put_back(adapter: str, verdict: str) -> None:
    module = Counting()
    result = compared(module, torch.randn(2, 8), adapter=adapter)
    assert (numerics(result), module.statistics) == (verdict, {"calls": [0]}), result.message


def test_a_reference_that_does_not_repeat_its_numbers_establishes_nothing() -> None:
    CALLS[0] = 0
    result = compared(CountingInAGlobal(), torch.randn(2, 8))
    assert numerics(result) == "not_established"
    assert "other numbers when it is run again" in result.message
    (change,) = result.artifacts["kerneldiff/reviews.csv"].to_dict("records")
    assert (change["review"], change["verdict"], change["kind"]) == ("repeated reference", "not_established", "output")
    assert change["verdict_before"] == "within_floor" and change["bound_before"].startswith("floor_")
    assert change["reason"] == "the reference does not repeat its numbers"


def test_a_generator_of_the_modules_own_is_put_back_and_makes_no_floor() -> None:
    module = OwnGenerator()
    before = module.generator.get_state()
    assert numerics(compared(module, torch.randn(4, 8), adapter="aot_eager")) == "exact"
    result = compared(module, torch.randn(4, 8))
    assert numerics(result) != "within_floor" and result.status == "failed", result.message
    assert torch.equal(module.generator.get_state(), before)


class Plain:
    def __init__(self) -> None:
        self.items, self.queue, self.names = [1, {"deep": [2]}], deque([3], maxlen=2), {"a"}


def test_objects_keep_who_they_are() -> None:
    plain = Plain()
    before, identities = copy.deepcopy(plain), [id(plain.items), id(plain.items[1]), id(plain.queue), id(plain.names)]
    snapshot = Snapshot({"inputs": (plain,)})
    plain.items[1]["deep"].append(9)
    plain.items.append(7)
    plain.queue.extend([4, 5])
    plain.names.add("b")
    plain.extra = torch.ones(1)
    snapshot.restore()
    assert vars(plain) == vars(before)
    assert identities == [id(plain.items), id(plain.items[1]), id(plain.queue), id(plain.names)]


class Rows(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.rows = torch.zeros(3)


def test_a_dataset_that_a_module_refers_to_is_not_copied() -> None:
    module = nn.Linear(2, 2)
    module.data, module.options = Rows(), Plain()
    snapshot = Snapshot(module)
    module.data.rows += 1
    module.options.items.append(3)
    snapshot.restore()
    assert module.data.rows.tolist() == [1.0, 1.0, 1.0] and module.options.items == Plain().items


class Slotted:
    __slots__ = ("__count", "last", "never")

    def __init__(self) -> None:
        self.__count, self.last = 0, torch.zeros(8)

    def step(self, x: torch.Tensor) -> int:
        self.__count += 1
        self.last, self.never = x.detach()[0], self.__count
        return self.__count


class CountsInSlots(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.slotted = nn.Linear(8, 8), Slotted()
        self.named, self.user = SimpleNamespace(calls=0), UserDict(calls=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.named.calls += 1
        self.user["calls"] += 1
        return self.layer(x) / (self.slotted.step(x) * self.named.calls * self.user["calls"])


def test_state_in_slots_and_in_plain_holders_is_put_back() -> None:
    module = CountsInSlots()
    last = module.slotted.last
    result = compared(module, torch.randn(4, 8), adapter="aot_eager")
    assert numerics(result) == "exact", result.message
    assert module.slotted.last is last and module.slotted.last.eq(0).all() and not hasattr(module.slotted, "never")
    assert module.slotted.step(last.expand(1, 8)) == 1
    assert module.named.calls == module.user["calls"] == 0
