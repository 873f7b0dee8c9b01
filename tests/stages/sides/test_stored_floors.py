"""The floors that a baseline stores judge another machine's run, which then runs no eager step."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from baseline_runs import CALLS, Gate, altered, at_the_branch, context_of, run, stored
from fault_models import Convolutional
from plain_sums import Decomposed
from safetensors.torch import load_file, save_file
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.kept_noise import KeptNoise
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.settings import BackendConfig
from inductor_debug.stages.sides.baseline import open_baseline
from inductor_debug.stages.sides.baseline_store import FOLDER
from inductor_debug.stages.sides.mirrored import one_step


class Counted(Convolutional):
    """Notes every call of its Python code outside of a compiler."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            CALLS.append(x.dtype)
        return super().forward(x)


class Plain(AcceleratorAdapter):
    """Right, and worse than eager: decomposed, sums one term after another."""

    name = "plain"
    error = 0.0

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with Decomposed():
                found = gm(*args)
            return [
                out * (1 + self.error) if isinstance(out, torch.Tensor) and out.shape == (16,) else out for out in found
            ]

        return call


class PlainAndWrong(Plain):
    """The same, and gradients of the norm are wrong by a thousandth."""

    error = 1e-3


def training(adapter: str = "aot_eager") -> StageContext:
    torch.manual_seed(0)
    context = context_of(adapter, module=Counted, inputs=(torch.randn(4, 3, 8, 8),))
    if adapter[0].isupper():
        context.settings.backend = BackendConfig(adapter, f"{__name__}.{adapter}")
    return context


def of_another_machine(about: dict[str, Any]) -> None:
    about["made_with"] |= {"torch": "2.0.0", "machine": "another"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of another process that stored its floors, as if of another machine."""
    folder = tmp_path_factory.mktemp("written")
    code = (
        "from pathlib import Path; from baseline_runs import stored; from test_stored_floors import training; "
        f"stored(Path({str(folder)!r}), training(), store_baseline=True, draws=1)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=True)
    return altered(folder, of_another_machine)


def test_right_code_that_rounds_otherwise_passes_by_another_processes_floors_without_eager(written: str) -> None:
    CALLS.clear()
    result = run(training("Plain"), baseline=written)
    assert result.status == "passed", result.message
    assert "the noise is that of 6 runs there that round otherwise" in result.message
    assert "noise of references that round otherwise" in set(result.artifacts["kerneldiff/reviews.csv"]["reason"])
    assert not CALLS
    assert run(training("Plain"), baseline=written, perturbations=0).status == "failed"


def test_an_error_of_a_thousandth_fails_by_them(written: str) -> None:
    CALLS.clear()
    result = run(training("PlainAndWrong"), baseline=written)
    table = result.artifacts["kerneldiff/outputs.csv"]
    assert {"norm.weight", "norm.bias"} <= set(table[table["verdict"] == "defect"]["path"]), result.message
    assert not CALLS


def test_the_run_that_stores_floors_judges_by_them(tmp_path: Path) -> None:
    source, first = stored(tmp_path, training("Plain"), store_baseline=True, draws=1)
    again = run(training("Plain"), baseline=source)
    columns = ["kind", "path", "verdict", "bound", "floor_rms", "ratio"]
    tables = [result.artifacts["kerneldiff/outputs.csv"][columns] for result in (first, again)]
    assert tables[0].equals(tables[1])
    assert "with the noise of runs that round otherwise" in first.artifacts["kerneldiff/diagnosis.json"].baseline


def test_a_run_that_does_not_force_its_baseline_runs_nothing_for_it(tmp_path: Path) -> None:
    CALLS.clear()
    source, _ = stored(tmp_path, training(), draws=1)
    assert [torch.float32, torch.float64] == CALLS
    assert open_baseline(source).floors() == ([], {})


# branches


def gate(adapter: str) -> StageContext:
    return context_of(adapter, module=Gate, inputs=at_the_branch())


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    """Floors of a model at a branch, stored with a reference and gold that eager does not give here."""
    stored(tmp_path, gate("aot_eager"), store_baseline=True, draws=1)
    for file, factor in (("reference", 1 + 2**-23), ("gold", 1 + 1e-7)):
        path = tmp_path / FOLDER / f"{file}.safetensors"
        tensors = load_file(path)
        save_file(tensors | {"output/output": tensors["output/output"] * factor}, path)
    altered(tmp_path, of_another_machine)
    return tmp_path


def test_a_stored_jump_excuses_the_branch_that_a_side_took(gated: Path) -> None:
    result = run(gate("Flipping"), baseline=str(gated))
    assert result.status == "passed", result.message
    assert "conditioning" in set(result.artifacts["kerneldiff/outputs.csv"]["bound"])


def test_a_stored_jump_excuses_no_wrong_scale(gated: Path) -> None:
    assert run(gate("Scaled"), baseline=str(gated)).status == "failed"


def test_a_baseline_without_floors_is_judged_as_before(tmp_path: Path) -> None:
    def without_floors(about: dict[str, Any]) -> None:
        del about["floors"]
        about["files"].pop("jumps.safetensors")

    stored(tmp_path, gate("aot_eager"), store_baseline=True, draws=1)
    result = run(gate("Flipping"), baseline=altered(tmp_path, without_floors))
    assert result.status == "passed", result.message
    assert "references that round otherwise were run here" in result.message


# whole numbers


class Levels(nn.Module):
    """Whole numbers made of floating-point ones, many of which lie within rounding of a tie."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.layer(x) * 2**18).round().to(torch.int32)


def test_floors_of_whole_numbers_come_back_as_they_were(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = (torch.randn(8, 256),)
    source, _ = stored(tmp_path, context_of(module=Levels, inputs=inputs, mode="inference"), store_baseline=True)
    case: Case = context_of(module=Levels, inputs=inputs, mode="inference").case
    config = KernelDiffConfig()
    reference, gold = one_step("reference", case).leaves, one_step("gold", case.to_gold()).leaves
    here = KeptNoise.measured(case, reference, gold, config, lambda text: None)
    there = KeptNoise.stored(open_baseline(source), gold, config)
    assert here is not None and there is not None
    verdicts = []
    for count in (1, 8):
        levels = gold["output"]["output"].clone()
        levels[:count, :100] += 1
        test = {"output": {"output": levels}}
        rows = KernelDiff().compare_leaves(reference["output"], test["output"], gold["output"], kind="output")
        found, again = here.judged(rows, test), there.judged(rows, test)
        assert found == again
        verdicts.append(found[0].verdict)
    assert verdicts == ["within_floor", "defect"]


# what a stranger may have stored


def noise(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    return lambda about: change(next(item for item in about["floors"] if item["path"] == "weight"))


DAMAGE: dict[str, Callable[[dict[str, Any]], None]] = {
    "of no tensor": noise(lambda item: item.update(path="other")),
    "twice": lambda about: about["floors"].append(about["floors"][0]),
    "negative": noise(lambda item: item["rms"].__setitem__(0, -1.0)),
    "of no run": noise(lambda item: item.update(rms=[], maximum=[])),
    "of other counts": noise(lambda item: item["rms"].append(1.0)),
    "negative jump": noise(lambda item: item.update(jump_max=-1.0)),
    "no number": noise(lambda item: item.update(gain=None)),
    "infinite": noise(lambda item: item.update(jump_rms=float("inf"))),
    "no list": lambda about: about.update(floors={}),
}


def check(folder: Path) -> None:
    KernelDiffStage(KernelDiffConfig(baseline=str(folder))).check(gate("aot_eager"))


@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_floors_that_no_run_gives_are_a_configuration_error(
    change: Callable[[dict[str, Any]], None], gated: Path
) -> None:
    check(gated)
    with pytest.raises((ConfigurationError, ValueError), match=r"is damaged|not JSON compliant"):
        altered(gated, change)
        check(gated)


@pytest.mark.parametrize(
    "jumps",
    [
        {"gradient/weight": torch.full((3,), float("inf"), dtype=torch.bfloat16)},
        {"gradient/weight": torch.full((3,), -1.0, dtype=torch.bfloat16)},
        {"gradient/weight": torch.ones(3)},
        {"gradient/weight": torch.ones(4, dtype=torch.bfloat16)},
        {"gradient/other": torch.ones(3, dtype=torch.bfloat16)},
    ],
    ids=["infinite", "negative", "dtype", "shape", "name"],
)
def test_jumps_that_no_run_gives_are_a_configuration_error(jumps: dict[str, torch.Tensor], gated: Path) -> None:
    save_file(jumps, gated / FOLDER / "jumps.safetensors")
    altered(gated, lambda about: None)
    with pytest.raises(ConfigurationError, match=r"is damaged.*jumps"):
        check(gated)
