"""Random numbers that a clean compiler draws otherwise are no defect, and a fault beside them still is one."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.diff import diff
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings

aten = torch.ops.aten


class Faithful(AcceleratorAdapter):
    """Runs the graph. ``factor`` is how much too large its results are."""

    factor = 1.0

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def scaled(out: Any) -> Any:
            floating = isinstance(out, torch.Tensor) and out.is_floating_point()
            return out * self.factor if floating and self.factor != 1 else out

        return lambda *args: tuple(scaled(out) for out in gm(*args))


class Scaled(Faithful):
    factor = 1.01


class LastBit(Faithful):
    """Its results differ in the last bits, as a compiler's do."""

    factor = 1 + 2**-23


class OtherOrder(Faithful):
    """Keeps every tensor contiguous, and so draws for other elements than eager where that does not."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        for node in gm.graph.nodes:
            if node.target is aten.rand_like.default:
                node.target = contiguous_noise
            elif node.target is aten.bernoulli.p:
                node.target = contiguous_mask
        gm.recompile()
        return super().compile(gm, example_inputs)


class OtherOrderScaled(OtherOrder, Scaled):
    pass


def contiguous_noise(x: torch.Tensor, **_: Any) -> torch.Tensor:
    return torch.rand(x.shape, device=x.device)


def contiguous_mask(x: torch.Tensor, probability: float) -> torch.Tensor:
    return torch.empty(x.shape, device=x.device).bernoulli_(probability)


class Drawing(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(8, 8), nn.Linear(8, 8), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.function(self.first(x)))


def context(
    module: nn.Module, *inputs: torch.Tensor, adapter: str, mode: str = "training", seed: int = 0
) -> StageContext:
    torch._dynamo.reset()
    case = Case(
        "net", module.train(mode == "training"), inputs, {}, mode, torch.float32, torch.device("cpu"), seed=seed
    )
    own = adapter not in ("aot_eager", "inductor")
    backend = BackendConfig(adapter, f"{__name__}.{adapter}" if own else adapter)
    return StageContext(Settings(ModelConfig("net"), backend=backend, mode=mode), MemoryArtifacts(), {"case": case})


def run(context: StageContext, **options: Any) -> StageResult:
    return KernelDiffStage(KernelDiffConfig(plots=False, store_baseline=False, **options)).run(context)


def compared(module: nn.Module, *inputs: torch.Tensor, **options: Any) -> StageResult:
    return run(context(module, *inputs, **options))


def verdict(result: StageResult) -> str:
    found: str = result.summary["numerics"].verdict
    return found


def drawn(result: StageResult) -> str:
    found: str = result.artifacts["kerneldiff/diagnosis.json"].random
    return found


def noise_of_a_transposed_tensor(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rand_like(x.transpose(0, 1)).transpose(0, 1)


def mask_of_a_transposed_tensor(x: torch.Tensor) -> torch.Tensor:
    return x * torch.empty_like(x.transpose(0, 1)).bernoulli_(0.5).transpose(0, 1)


IN_ORDER = "in another form or order of memory; it was judged with the reference's random numbers"


@pytest.mark.parametrize(
    ("adapter", "expected"), [("OtherOrder", "exact"), ("OtherOrderScaled", "defect"), ("Faithful", "exact")]
)
@pytest.mark.parametrize("function", [noise_of_a_transposed_tensor, mask_of_a_transposed_tensor])
def test_numbers_drawn_in_another_order_of_memory_are_the_reference_s(
    adapter: str, expected: str, function: Callable[[torch.Tensor], Any]
) -> None:
    torch.manual_seed(0)
    result = compared(Drawing(function), torch.randn(6, 8), adapter=adapter)
    assert verdict(result) == expected, result.message
    assert adapter == "Faithful" or IN_ORDER in drawn(result), drawn(result)


@pytest.mark.parametrize(("steps", "repeats"), [(0, 3), (2, 1)])
@pytest.mark.parametrize(("adapter", "expected"), [("OtherOrder", "exact"), ("OtherOrderScaled", "defect")])
def test_later_runs_and_optimizer_steps_have_the_reference_s_numbers(
    adapter: str, expected: str, steps: int, repeats: int
) -> None:
    torch.manual_seed(0)
    made = context(Drawing(noise_of_a_transposed_tensor), torch.randn(6, 8), adapter=adapter)
    result = run(made, steps=steps, repeats=repeats)
    assert verdict(result) == expected, result.message


def test_inductor_s_own_order_of_memory_is_no_defect() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), Noise(), nn.Conv2d(8, 8, 3))
    result = compared(module, torch.randn(2, 3, 12, 12), adapter="inductor")
    assert verdict(result) in ("exact", "within_floor"), result.message


class Noise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand_like(x)


def unused_then_used(x: torch.Tensor) -> torch.Tensor:
    torch.rand(8)
    return x * torch.rand(8)


@pytest.mark.parametrize(("adapter", "expected"), [("aot_eager", "exact"), ("Scaled", "defect")])
def test_a_draw_that_eager_does_not_use(adapter: str, expected: str) -> None:
    torch.manual_seed(0)
    result = compared(Drawing(unused_then_used), torch.randn(4, 8), adapter=adapter)
    assert verdict(result) == expected, result.message
    assert "but for some that the reference does not use" in drawn(result)


def test_results_within_their_floors_are_not_asked_what_was_drawn() -> None:
    torch.manual_seed(0)
    module = Drawing(lambda x: (torch.rand(3), x)[1])
    result = compared(module, torch.randn(4, 8), adapter="LastBit", mode="inference")
    assert verdict(result) == "within_floor", result.message
    assert set(result.artifacts["kerneldiff/outputs.csv"]["bound"]) <= {"floor_rms", "floor_max", "bits"}
    assert drawn(result).endswith("but nothing that it gave is beyond its bound")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(F.gelu(F.dropout(x, 0.1)), 0.5),
        pytest.param(lambda x: F.dropout(x.transpose(0, 1), 0.3).transpose(0, 1), marks=pytest.mark.slow),
        pytest.param(lambda x: F.gumbel_softmax(x), marks=pytest.mark.slow),
        lambda x: x * torch.bernoulli(torch.sigmoid(x)),
        pytest.param(lambda x: x + torch.empty_like(x).normal_(0, 0.1), marks=pytest.mark.slow),
        pytest.param(lambda x: x[torch.randperm(4)], marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("adapter", "expected"), [("Faithful", "exact"), ("Scaled", "defect")])
def test_a_fault_beside_random_numbers_is_a_defect(
    adapter: str, expected: str, function: Callable[[torch.Tensor], Any]
) -> None:
    torch.manual_seed(0)
    result = compared(Drawing(function), torch.randn(4, 8), adapter=adapter)
    assert verdict(result) == expected, (result.message, drawn(result))


def test_draws_that_can_not_be_told_to_be_the_same_make_no_defect() -> None:
    torch.manual_seed(0)
    module = Drawing(lambda x: checkpoint(lambda y: F.dropout(y, 0.3), x, use_reentrant=False))
    assert verdict(compared(module, torch.randn(4, 8), adapter="Faithful")) == "exact"
    result = compared(module, torch.randn(4, 8), adapter="Scaled")  # whose draws are within a higher-order operation
    assert verdict(result) == "not_established", result.message
    assert "drew other random numbers" in result.message


class Chooses(nn.Module):
    """Takes a layer or leaves it out, by a number that comes after one that Dynamo draws elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = x * torch.from_numpy(numpy.random.rand(8).astype(numpy.float32))
        states = {"first": self.layers[0](x)}
        if torch.rand([]) < 0.5:
            states["second"] = torch.tanh(self.layers[1](states["first"]))
        return states


def choices(seed: int) -> tuple[bool, bool]:
    """Whether the second layer is taken in eager, and where Dynamo drew NumPy's eight numbers from torch."""
    generator = torch.Generator().manual_seed(seed)
    eager = bool(torch.rand([], generator=generator) < 0.5)
    generator.manual_seed(seed)
    torch.rand(8, generator=generator, dtype=torch.float64)
    return eager, bool(torch.rand([], generator=generator) < 0.5)


def test_another_layer_that_was_dropped_is_no_defect_of_the_structure() -> None:
    seed = next(seed for seed in range(100) if choices(seed) == (True, False))
    torch.manual_seed(0)
    result = compared(Chooses(), torch.randn(4, 8), adapter="Faithful", seed=seed)
    rows = result.artifacts["kerneldiff/outputs.csv"].set_index("path")
    assert (rows.loc["second", "verdict"], rows.loc["second", "bound"]) == ("not_established", "random")
    assert verdict(result) == "not_established" and "defect" not in set(rows["verdict"]), result.message
    assert "the test side drew other random numbers than the reference" in result.message


class ByPython(nn.Module):
    """Skips its second layer by a number of Python's, or of NumPy's."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.layers, self.draw = nn.ModuleList([nn.Linear(8, 8), Block()]), draw

    @torch._dynamo.disable(recursive=False)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped = self.draw() < 0.5
        return x if skipped else self.layers[1](x)


class Block(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 2


@pytest.mark.parametrize("library", [random, numpy.random], ids=["random", "numpy"])
def test_a_case_is_compiled_from_its_seed_in_every_library(library: Any) -> None:
    seed = next(seed for seed in range(100) if random.Random(seed).random() >= 0.5)
    other = next(seed for seed in range(100) if random.Random(seed).random() < 0.5)
    if library is not random:
        seed = next(seed for seed in range(100) if numpy.random.RandomState(seed).rand() >= 0.5)
        other = next(seed for seed in range(100) if numpy.random.RandomState(seed).rand() < 0.5)
    made = context(ByPython(library.random), torch.randn(2, 8), adapter="aot_eager", mode="inference", seed=seed)
    library.seed(other)
    compiled = compile_case(made.case, build_adapter(BackendConfig("aot_eager", "aot_eager")))
    assert compiled.given == 1  # the layer that a run at the case's seed takes
    made.case.run(compiled)
    assert compiled.given == 1


class WithGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.generator = nn.Linear(8, 8), torch.Generator().manual_seed(1)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        y = self.layer(x)
        return {"y": y + torch.rand(8, generator=self.generator), "generator": self.generator}


class Forgets(Faithful):
    """Leaves the model's own generator in another state."""

    generator: torch.Generator

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            Forgets.generator.manual_seed(5)
            return gm(*args)

        return run


def test_a_generator_among_the_outputs_is_compared_by_its_state() -> None:
    torch.manual_seed(0)
    module = WithGenerator()
    before = module.generator.get_state()
    result = compared(module, torch.randn(4, 8), adapter="aot_eager")
    assert verdict(result) == "exact", result.message
    assert torch.equal(module.generator.get_state(), before)
    Forgets.generator = module.generator
    rows = compared(module, torch.randn(4, 8), adapter="Forgets").artifacts["kerneldiff/outputs.csv"].set_index("path")
    assert rows.loc["generator", "verdict"] == "not_established"


class Lazily(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> Any:
        return (layer(x) for layer in self.layers)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("adapter", "expected"), [("Faithful", "exact"), ("Scaled", "defect")])
def test_what_a_python_generator_gives_is_compared(adapter: str, expected: str, mode: str) -> None:
    torch.manual_seed(0)
    result = compared(Lazily(), torch.randn(4, 8), adapter=adapter, mode=mode)
    assert verdict(result) == expected, result.message
    assert {"output[0]", "output[1]", "output[2]"} <= set(result.artifacts["kerneldiff/outputs.csv"]["path"])


class Cancelling(nn.Module):
    """Dropout before a sum of which 100 is taken away again: in bfloat16 a tenth of the output is noise."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (F.dropout(self.layer(x), 0.5, self.training) + 100) - 100


@pytest.mark.parametrize(("factor", "expected"), [(1.02, "within_floor"), (3.0, "defect")])
def test_a_wide_floor_of_equal_draws_is_a_floor(factor: float, expected: str) -> None:
    """Each random operation of gold has the reference's numbers, so that the floor's width is rounding."""

    def near(gm: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out * factor for out in gm(*args))

    torch.manual_seed(0)
    torch._dynamo.reset()
    x = torch.randn(8, 16)
    found = diff(Cancelling().train(), (x,), backend=near, mode="training", dtype=torch.bfloat16, draws=1)
    row = found.rows[0]
    assert row.floor_rms is not None and row.reference_rms and row.floor_rms / row.reference_rms > 2**-4
    assert row.verdict == expected and "random" not in (row.message or "")
    assert found.random == "all sides drew the same random numbers"
