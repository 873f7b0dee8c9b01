"""Baseline runs: a stored reference judges as the reference itself does, and a foreign one is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from baseline_runs import CALLS, CountsEager, Gate, altered, at_the_branch, context_of, judged, run, stored
from safetensors.torch import load_file, save_file
from torch import nn

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import ReferenceConfig
from inductor_debug.stages.sides import baseline_store as baseline_store


@pytest.mark.parametrize(
    ("adapter", "mode", "drop"),
    [("aot_eager", "training", 0.5), ("inductor", "training", 0.0), ("Scaled", "inference", 0.0)],
)
def test_a_baseline_judges_as_the_reference_itself(adapter: str, mode: str, drop: float, tmp_path: Path) -> None:
    source, first = stored(tmp_path, context_of(adapter, mode=mode, drop=drop))
    second = run(context_of(adapter, mode=mode, drop=drop), baseline=source)
    assert judged(first) == judged(second)
    assert first.summary == second.summary and first.status == second.status
    assert second.status == ("failed" if adapter == "Scaled" else "passed"), second.message
    kinds = set(second.artifacts["kerneldiff/outputs.csv"]["kind"])
    assert kinds == {"output", "input"} | ({"loss", "gradient", "buffer"} if mode == "training" else set())
    assert f"{source} (torch {torch.__version__}, cpu)" in second.message
    assert not [name for name in second.artifacts if name.startswith("kerneldiff/baseline/")]


@pytest.mark.parametrize("reference", [ReferenceConfig(dtype="float64"), ReferenceConfig(backend="aot_eager")])
def test_another_reference_is_stored_as_it_was(reference: ReferenceConfig, tmp_path: Path) -> None:
    context = context_of(mode="inference")
    context.settings.reference = reference
    source, first = stored(tmp_path, context)
    assert judged(first) == judged(run(context_of(mode="inference"), baseline=source))
    with pytest.raises(ConfigurationError, match=r"reference\.backend=inductor"):
        context.settings.reference = ReferenceConfig(backend="inductor")
        run(context, baseline=source)


def test_neither_reference_nor_gold_is_executed(tmp_path: Path) -> None:
    CALLS.clear()
    source, _ = stored(tmp_path, context_of(module=CountsEager, inputs=(torch.ones(2, 6),)))
    assert [torch.float32, torch.float64] == CALLS
    assert run(context_of(module=CountsEager, inputs=(torch.ones(2, 6),)), baseline=source).status == "passed"
    assert len(CALLS) == 2


def test_a_baseline_that_a_tolerance_decided_has_no_gold_and_says_so(tmp_path: Path) -> None:
    source, first = stored(tmp_path, rtol=1e-5)
    assert judged(first) == judged(run(context_of(), baseline=source, rtol=1e-5))
    assert "no gold is stored there" in run(context_of(), baseline=source).message


def test_stored_inputs_take_the_place_of_the_cases_own(tmp_path: Path) -> None:
    source, first = stored(tmp_path)
    context = context_of()
    x = context.case.args[0]
    x.add_(1)
    before = x.clone()
    assert judged(first) == judged(run(context, baseline=source))
    assert torch.equal(x, before) and context.case.args[0] is x


def gate_context() -> StageContext:
    return context_of("Flipping", module=Gate, inputs=at_the_branch())


def test_other_rounding_judges_where_eager_gives_the_stored_bits(tmp_path: Path) -> None:
    source, first = stored(tmp_path, gate_context())
    second = run(gate_context(), baseline=source)
    assert "conditioning" in set(first.artifacts["kerneldiff/outputs.csv"]["bound"])
    assert judged(first) == judged(second) and second.status == "passed"
    assert "references that round otherwise were run here" in second.message


def moved(folder: Path, file: str, factor: float) -> None:
    """Multiply a stored output, as another machine would have computed it."""
    path = folder / baseline_store.FOLDER / file
    tensors = load_file(path)
    save_file(tensors | {"output/output": tensors["output/output"] * factor}, path)


@pytest.mark.parametrize("gold", [1.0, 1 + 1e-12])
def test_other_rounding_judges_where_float64_gives_the_stored_gold(gold: float, tmp_path: Path) -> None:
    stored(tmp_path, gate_context())
    moved(tmp_path, "reference.safetensors", 1 + 2**-23)
    moved(tmp_path, "gold.safetensors", gold)
    result = run(gate_context(), baseline=altered(tmp_path, lambda about: None))
    assert result.status == "passed", result.message
    assert "where eager on cpu gives the stored gold in float64" in result.message


def test_other_rounding_does_not_judge_where_eager_gives_other_numbers(tmp_path: Path) -> None:
    stored(tmp_path, gate_context())
    moved(tmp_path, "reference.safetensors", 1 + 2**-23)
    moved(tmp_path, "gold.safetensors", 1 + 1e-7)
    result = run(gate_context(), baseline=altered(tmp_path, lambda about: None))
    assert result.summary["numerics"].verdict == "defect"
    assert "references that round otherwise were not run" in result.message
    assert "gives neither the stored reference nor, in float64, the stored gold" in result.message


def test_other_rounding_does_not_judge_where_the_device_is_not_here(tmp_path: Path) -> None:
    stored(tmp_path, gate_context())
    result = run(gate_context(), baseline=altered(tmp_path, lambda about: about["made_with"].update(device="cuda:99")))
    assert "the reference is of cuda:99, which is not here" in result.message


def test_eager_is_not_exercised_against_its_own_baseline_and_exact_against_a_foreign_one(tmp_path: Path) -> None:
    source, first = stored(tmp_path, context_of("eager"))
    assert first.summary["numerics"].verdict == "not_exercised"
    assert run(context_of("eager"), baseline=source).summary["numerics"].verdict == "not_exercised"
    altered(tmp_path, lambda about: about["made_with"].update(torch="2.11.0", device="cuda:0"))
    foreign = run(context_of("eager"), baseline=source)
    assert foreign.summary["numerics"].verdict == "exact"
    assert "(torch 2.11.0, cuda:0)" in foreign.message


def test_another_seeds_weights_establish_nothing(tmp_path: Path) -> None:
    source, _ = stored(tmp_path)
    result = run(context_of(seed=1), baseline=source)
    assert (result.status, result.summary["numerics"].verdict) == ("failed", "not_established")
    assert "4 of 10 parameters and buffers" in result.message and "first.weight" in result.message
    assert "Try: seed=0 (this run has seed=1)" in result.message


def test_one_changed_weight_establishes_nothing(tmp_path: Path) -> None:
    source, _ = stored(tmp_path)
    context = context_of()
    with torch.no_grad():
        context.case.module.last.bias[0] += 1
    assert "1 of 10 parameters and buffers" in (message := run(context, baseline=source).message)
    assert "last.bias" in message and "Try: the weights of that run" in message
    altered(tmp_path, lambda about: about["made_with"].update(cpu_capability="NEON"))
    message = run(context, baseline=source).message
    assert "Try: stages.kerneldiff.store_baseline=true in that run, which stores its weights too" in message
    assert "the same seed may draw other weights under cpu_capability NEON than under" in message


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_stored_weights_take_the_place_of_other_ones(dtype: str, tmp_path: Path) -> None:
    source, first = stored(tmp_path, context_of(dtype=dtype), store_baseline=True)
    assert "with the weights" in first.artifacts["kerneldiff/diagnosis.json"].baseline
    context = context_of(dtype=dtype, seed=1)
    mine = context.case.module
    before = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
    result = run(context, baseline=source)
    assert judged(result) == judged(first)
    assert "whose weights were taken for 4 parameters and buffers" in result.message
    assert context.case.module is not mine
    assert all(torch.equal(before[name], tensor) for name, tensor in mine.state_dict().items())


def test_stored_weights_that_are_the_cases_own_change_nothing(tmp_path: Path) -> None:
    source, _ = stored(tmp_path, store_baseline=True)
    context = context_of()
    mine = context.case.module
    assert "taken" not in run(context, baseline=source).message
    assert context.case.module is mine


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "inference"}, "mode=training; this run has mode=inference"),
        ({"dtype": "bfloat16"}, "dtype=float32; this run has dtype=bfloat16"),
        ({"module": CountsEager, "inputs": (torch.ones(2, 6),)}, "weights of which"),
        ({"inputs": (torch.randn(7, 8), torch.zeros(2, dtype=torch.int64))}, "inputs of which 1 differ"),
    ],
)
def test_a_baseline_of_something_else_is_a_configuration_error(
    options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    source, _ = stored(tmp_path)
    with pytest.raises(ConfigurationError, match="Try:") as raised:
        KernelDiffStage(KernelDiffConfig(baseline=source)).check(context_of(**options))
    assert told in str(raised.value) and source in str(raised.value)


def test_another_model_option_is_a_configuration_error_but_another_folder_is_not(tmp_path: Path) -> None:
    source, _ = stored(tmp_path)
    context = context_of()
    context.settings.model = ModelConfig("net", {"checkpoint": str(tmp_path)})
    assert run(context, baseline=source).status == "passed"
    context.settings.model = ModelConfig("net", {"heads": 8})
    with pytest.raises(ConfigurationError, match=r"model\.build\.heads=8"):
        run(context, baseline=source)


class Overlapping(nn.Module):
    """Writes into its second input, which may be a part of its first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, full: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        part.add_(1.0)
        return self.layer(full)


def overlapping_context(adapter: str, seed: int) -> StageContext:
    full = torch.randn(6, 8, generator=torch.Generator().manual_seed(seed))
    return context_of(adapter, module=Overlapping, inputs=(full, full[:3]), mode="inference")


@pytest.mark.parametrize("adapter", ["eager", "aot_eager"])
def test_stored_inputs_share_memory_as_the_cases_own_do(adapter: str, tmp_path: Path) -> None:
    source, first = stored(tmp_path, overlapping_context(adapter, seed=1))
    second = run(overlapping_context(adapter, seed=5), baseline=source)
    assert second.status == "passed", second.message
    assert judged(first) == judged(second)


def test_stored_inputs_that_do_not_fit_shared_memory_are_a_configuration_error(tmp_path: Path) -> None:
    inputs = (torch.randn(6, 8), torch.randn(3, 8))
    source, _ = stored(tmp_path, context_of(module=Overlapping, inputs=inputs, mode="inference"))
    with pytest.raises(ConfigurationError, match=r"input \w+, which shares memory with another.*\nTry: "):
        run(overlapping_context("aot_eager", seed=1), baseline=source)


def test_other_draws_than_the_baselines_name_its_seed(tmp_path: Path) -> None:
    source, _ = stored(tmp_path, context_of("eager", drop=0.5), store_baseline=True)
    result = run(context_of("eager", drop=0.5, seed=1), baseline=source)
    assert result.summary["numerics"].verdict == "not_established"
    assert "Try: seed=0 (this run has seed=1), or stages.kerneldiff.baseline=null" in result.message
    again = run(context_of("eager", drop=0.5), baseline=source)
    assert again.status == "passed" and "Try:" not in again.message
