"""What CUDA alone can do: refused elsewhere, asked of torch by its own option, and told only where it happened."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_benchmark_warmup import result_of, sampled

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.benchmark import timing
from inductor_debug.stages.benchmark.calls import L2Flush
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.sampling import timed_adapter
from inductor_debug.stages.benchmark.stage import BenchmarkStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.settings import BackendConfig, Settings


def checked(settings: Settings, **options: bool) -> None:
    BenchmarkStage(BenchmarkConfig(**options)).check(StageContext(settings, MemoryArtifacts()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["flush_l2", "cuda_graphs"])
def test_on_another_device_each_is_refused_with_what_to_type(name: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        checked(Settings(ModelConfig()), **{name: True})
    assert str(raised.value) == (
        f"stages.benchmark.{name}: got true with device=cpu; valid: true with device=cuda.\n"
        f"Try: device=cuda, or stages.benchmark.{name}=false"
    )


def test_cuda_graphs_are_torchinductors_alone() -> None:
    checked(Settings(ModelConfig(), device="cuda:0"), flush_l2=True, cuda_graphs=True)
    eager = Settings(ModelConfig(), device="cuda", backend=BackendConfig("eager", "eager"))
    checked(eager, flush_l2=True)
    with pytest.raises(ConfigurationError, match="got true with backend=eager; valid: true with backend=inductor"):
        checked(eager, cuda_graphs=True)


@pytest.mark.parametrize("given", [{}, {"triton": {"cudagraphs": False}}, {"triton.cudagraphs": False}])
def test_the_option_is_torchs_own_whatever_the_run_has(given: dict[str, Any]) -> None:
    adapter = build_adapter(Settings(ModelConfig(), backend=BackendConfig(inductor={"max_autotune": True, **given})))
    options = timed_adapter(adapter, BenchmarkConfig(cuda_graphs=True)).inductor_options()
    assert options is not None and options["triton.cudagraphs"] is True and options["max_autotune"] is True
    assert timed_adapter(adapter, BenchmarkConfig()) is adapter


def test_a_flush_writes_twice_the_cache_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=500))
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    device = torch.device("cpu")
    flush = L2Flush(device)
    flush._buffer.fill_(1)
    flush()
    assert flush._buffer.nbytes == 1000 and not flush._buffer.any() and waited == [device]
    flush.queue()
    assert len(waited) == 1


def test_what_is_done_before_a_call_is_not_in_its_time() -> None:
    now, order = [0.0], []

    def passes(name: str, seconds: float) -> None:
        order.append(name)
        now[0] += seconds

    calls = {"reference": lambda: passes("reference", 0.2), "test": lambda: passes("test", 0.1)}
    samples = timing.interleave(
        calls, repeats=3, max_repeats=3, relative_ci=1.0, budget_s=9.0, clock=lambda: now[0],
        before=lambda: passes("before", 0.5),
    )  # fmt: skip
    assert samples.milliseconds["test"] == pytest.approx([100.0] * 3)
    assert order[:4] == ["before", "reference", "before", "test"] and order.count("before") == 6


@pytest.mark.parametrize(("counts", "established"), [((2, 2), True), ((2, 0), False)])
def test_graphs_that_a_process_did_not_record_are_not_told_as_had(counts: tuple[int, int], established: bool) -> None:
    found = [sampled(index, [2.0] * 4, [1.0] * 4) for index in range(2)]
    for each, count in zip(found, counts, strict=True):
        each.cuda_graphs, each.l2_flushed = count, True
    result = result_of(found)
    told = result.summary["benchmark"]
    assert (told.established, told.cuda_graphs, told.l2_flushed) == (established, min(counts), True)
    assert ("2 CUDA graphs on the test side" in result.message) is established
    assert ("torch recorded none" in result.message) is not established
    assert "L2 was flushed before each call." in result.message.splitlines()


def test_without_the_options_nothing_is_said_of_them() -> None:
    result = result_of([sampled(index, [2.0] * 4, [1.0] * 4) for index in range(2)])
    told = result.summary["benchmark"]
    assert told.cuda_graphs is told.l2_flushed is None
    assert "CUDA" not in result.message and "L2" not in result.message
