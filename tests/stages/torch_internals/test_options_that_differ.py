"""The options that differ from the compilers' defaults: of the environment, of patches, of the model's own code."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch._inductor.utils import fresh_cache

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compiled_case
from inductor_debug.stages.backends.eager import EagerAdapter
from inductor_debug.stages.capture.config import CaptureConfig
from inductor_debug.stages.capture.stage import CaptureStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.torch_internals.compiler_options import (
    KEPT,
    SEVERAL,
    CompilationOptions,
    differing,
    primitive,
)

CODE = (
    "import json; from inductor_debug.stages.torch_internals.compiler_options import differing; "
    "print(json.dumps(differing()))"
)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"inductor": {}, "dynamo": {}, "functorch": {}}),
        (
            {"TORCHINDUCTOR_FREEZING": "1", "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": "1"},
            {"inductor": {"freezing": True}, "dynamo": {"capture_scalar_outputs": True}, "functorch": {}},
        ),
        ({"FAKE_ALLOW_META": "0"}, {"inductor": {}, "dynamo": {}, "functorch": {"fake_tensor_allow_meta": False}}),
    ],
)
def test_a_variable_shows_as_the_option_that_it_sets(variables: dict[str, str], expected: dict[str, object]) -> None:
    clean = {name: os.environ[name] for name in KEPT if name in os.environ}  # torch's defaults ask for CI's too
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=clean | variables, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == expected


def test_a_patch_shows_while_it_is_in_force_and_the_environment_is_left() -> None:
    variables = dict(os.environ)
    before = differing()
    with inductor_config.patch({"max_autotune": True, "cpp.threads": 2}), dynamo_config.patch(allow_rnn=True):
        inside = differing()
    assert inside["inductor"] == before["inductor"] | {"max_autotune": True, "cpp.threads": 2}
    assert inside["dynamo"] == before["dynamo"] | {"allow_rnn": True}
    assert differing() == before and dict(os.environ) == variables
    assert not [name for name in sys.modules if name.startswith("_defaults_of_")]


def test_values_are_primitives() -> None:
    assert primitive({1: (2, [print], {"b", "a"})}) == {"1": [2, ["<builtins.print>"], ["a", "b"]]}


NOTHING: dict[str, dict[str, Any]] = {"inductor": {}, "dynamo": {}, "functorch": {}}


class Setting(torch.nn.Module):
    """Sets options while it runs: what is before it in ``forward`` was compiled without them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        inductor_config.epilogue_fusion = False
        dynamo_config.allow_rnn = True
        torch._dynamo.graph_break()
        return x.cos()


class Patching(AcceleratorAdapter):
    """A backend that patches options around its own compilation, as vendors do around TorchInductor's."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        raise AssertionError("dynamo_backend is its own")

    def dynamo_backend(self) -> Callable[..., Any]:
        from torch._dynamo.backends.debugging import aot_eager
        from torch._inductor.compile_fx import compile_fx

        def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
            compiler = compile_fx if self.name == "with Inductor" else aot_eager
            with inductor_config.patch(max_fusion_size=7), functorch_config.patch(activation_memory_budget=0.5):
                return compiler(gm, example_inputs)

        return backend


class PatchingInductor(Patching):
    name = "with Inductor"


@pytest.fixture
def left_as_found() -> Iterator[None]:
    found = inductor_config.epilogue_fusion, dynamo_config.allow_rnn
    yield
    inductor_config.epilogue_fusion, dynamo_config.allow_rnn = found
    torch._dynamo.reset()


def case_of(module: torch.nn.Module, mode: str = "inference") -> Case:
    inputs = (torch.randn(3, 4),)
    return Case("net", module, inputs, {}, mode, torch.float32, torch.device("cpu"))


def options_of(case: Case, adapter: AcceleratorAdapter, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is told of the case's one compilation, less what differed before it: torch's defaults differ in CI."""
    before = differing()
    told: list[CompilationOptions] = []
    context = StageContext(Settings(ModelConfig()), MemoryArtifacts(), {"case": case}, compiled_with=told.append)
    monkeypatch.setattr("inductor_debug.stages.backends.compiled.build_adapter", lambda settings: adapter)
    compiled_case(context)
    assert compiled_case(context) is context.live["compiled"] and len(told) == 1
    return {
        compiler: {key: value for key, value in values.items() if before[compiler].get(key) != value}
        for compiler, values in told[0].over(NOTHING).items()
    }


def test_what_aot_inductor_tells_beside_its_code_is_no_option(monkeypatch: pytest.MonkeyPatch) -> None:
    before = differing()
    monkeypatch.setitem(inductor_config.aot_inductor.metadata, "AOTI_DEVICE_KEY", "cpu")  # as it does, in place
    assert differing() == before


@pytest.mark.usefixtures("left_as_found")
def test_what_a_model_sets_while_it_runs_is_told_of_the_code_compiled_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = options_of(case_of(Setting()), EagerAdapter(), monkeypatch)
    assert found["inductor"] == {"epilogue_fusion": {SEVERAL: [None, False]}}
    assert found["dynamo"] == {"allow_rnn": {SEVERAL: [None, True]}}


@pytest.mark.usefixtures("left_as_found")
def test_the_capture_stage_tells_too_where_nothing_else_was_compiled() -> None:
    told: list[CompilationOptions] = []
    live = {"case": case_of(Setting())}
    context = StageContext(Settings(ModelConfig()), MemoryArtifacts(), live, compiled_with=told.append)
    CaptureStage(CaptureConfig()).run(context)
    by_backend = {"inductor": {"fallback_random": True}}  # in force only where the backend compiles
    found = told[0].over(NOTHING | by_backend)
    assert found["dynamo"] == {"allow_rnn": {SEVERAL: [None, True]}} and found["inductor"] == by_backend["inductor"]
    context.live["compiled"] = object()
    CaptureStage(CaptureConfig()).run(context)
    assert len(told) == 1


@pytest.mark.usefixtures("left_as_found")
def test_what_a_backend_patches_is_told_where_the_compiler_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = options_of(case_of(torch.nn.Linear(4, 4)), Patching(), monkeypatch)
    assert found["functorch"] == {"activation_memory_budget": 0.5}
    assert found["inductor"] == {"max_fusion_size": 7}
    assert not any(differing()[name].keys() & {"max_fusion_size", "activation_memory_budget"} for name in NOTHING)


@pytest.mark.slow
@pytest.mark.usefixtures("left_as_found")
def test_a_backward_compiled_after_the_patch_was_closed_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_cache():  # code that AOTAutograd's cache has is looked up as a whole, by the options of the forward
        found = options_of(case_of(torch.nn.Linear(4, 4), "training"), PatchingInductor(), monkeypatch)
    assert found["functorch"] == {"activation_memory_budget": 0.5}
    assert found["inductor"] == {"max_fusion_size": {SEVERAL: [7, None]}}


@pytest.mark.slow
def test_what_a_recording_patches_itself_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from inductor_debug.stages.backends.inductor import InductorAdapter

    adapter = InductorAdapter({"max_fusion_size": 7})
    found = options_of(case_of(torch.nn.Linear(4, 4), "training"), adapter, monkeypatch)
    assert found == NOTHING | {"inductor": {"fallback_random": True, "max_fusion_size": 7}}


def test_where_no_compiler_was_seen_the_options_are_those_before() -> None:
    before = NOTHING | {"inductor": {"freezing": True}}
    with CompilationOptions().noted():
        pass
    assert CompilationOptions().over(before) == before
