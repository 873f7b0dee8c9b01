"""TorchInductor's compile workers have ended before anything is timed."""

from collections.abc import Callable, Iterator
from typing import Any

import benchmark_models
import psutil
import pytest
import torch
from torch._inductor import config as inductor_config
from torch._inductor.async_compile import AsyncCompile

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.benchmark import timing
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.sampling import Sampler
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.profile import observation
from inductor_debug.stages.settings import Settings


class Timed(Exception):
    """Timing began."""


def workers() -> list[int]:
    """Process ids of the pools that this process compiles in; an ended child has no command line."""
    children = [child.as_dict(["pid", "cmdline"], ad_value=[]) for child in psutil.Process().children()]
    return [child["pid"] for child in children if "compile_worker" in " ".join(child["cmdline"])]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A pool was started, as loading a module with Triton kernels does; calling this tells who is left of it."""

    def timed(*_: Any, **__: Any) -> None:
        raise Timed(workers())

    with inductor_config.patch(compile_threads=2):
        AsyncCompile.wakeup()
        assert workers()
        yield timed


def test_before_sampling(started: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "interleave", started)
    settings = Settings(ModelConfig("net", build={"_target_": "benchmark_models.net"}))
    context = StageContext(settings, MemoryArtifacts())
    sampler = Sampler(context, BenchmarkConfig(warmup=1), 0, 1, lambda event: None, lambda case: None)
    monkeypatch.setattr(sampler, "_function", lambda side, case: case.module)
    with pytest.raises(Timed) as raised:
        sampler.run()
    assert raised.value.args == ([],)


def test_before_steps_are_recorded(started: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "_steps", started)
    module, inputs = benchmark_models.net()
    case = Case("net", module, inputs, {}, "inference", torch.float32, torch.device("cpu"))
    with pytest.raises(Timed) as raised:
        observation.observe(case, module, module, set, lambda: 0, steps=2, warmup=1, trace_steps=0)
    assert raised.value.args == ([],)
