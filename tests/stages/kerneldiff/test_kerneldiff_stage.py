"""The kerneldiff stage on a small real model behind real backends, right, wrong and crashing."""

import contextlib
import copy

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.torch_private import TorchDispatchMode
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.kerneldiff.standard import Standard
from inductor_debug.stages.kerneldiff.tables import table
from inductor_debug.stages.localize.config import AFTER_DEFECT, ALWAYS, NEVER, LocalizeConfig
from inductor_debug.stages.localize.engine import Engine
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.settings import BackendConfig, ReferenceConfig, Settings
from inductor_debug.stages.sides.running import Side
from inductor_debug.stages.tensor_pictures.canvas import canvas_of, matrix_shape
from inductor_debug.stages.tensor_pictures.error_counts import count_errors
from inductor_debug.stages.tensor_pictures.tensor import draw


class Net(torch.nn.Module):
    """Normalisation statistics that a step changes, and dropout where ``drop`` is above 0."""

    def __init__(self, drop=0.0):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16)
        self.last, self.drop = torch.nn.Linear(16, 4), torch.nn.Dropout(drop)

    def forward(self, x):
        hidden = torch.relu(self.norm(self.first(x)))
        return {"logits": self.last(self.drop(hidden)), "hidden": (hidden,)}


class Scaled(AcceleratorAdapter):
    """Wrong by a thousandth in its first output."""

    name = "scaled"

    def compile(self, gm, example_inputs):
        def run(*args):
            first, *rest = gm(*args)
            return (first * 1.001, *rest)

        return run


class Planted(PlantedFault):
    """Wrong at the relu."""

    def __init__(self):
        super().__init__(AotEagerAdapter(), "relu", "scale")


class Crashing(AcceleratorAdapter):
    """Can't compile anything."""

    name = "crashing"

    def compile(self, gm, example_inputs):
        raise RuntimeError("no such instruction: vmul.q7")


def context_of(backend="aot_eager", *, mode="training", drop=0.0, dtype=torch.float32, adapter=None):
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = Net(drop).to(dtype).train(mode == "training")
    case = Case("net", module, (torch.randn(6, 8).to(dtype),), {}, mode, dtype, torch.device("cpu"))
    settings = Settings(
        ModelConfig("net"),
        backend=BackendConfig(backend, adapter or backend),
        mode=mode,
        dtype=str(dtype).removeprefix("torch."),
    )
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def run(context, **options):
    return KernelDiffStage(KernelDiffConfig(**options)).run(context)


def verdicts(result):
    rows = result.artifacts["kerneldiff/outputs.csv"]
    return dict(zip(rows["path"], rows["verdict"], strict=True))


def test_aot_eager_trains_alike_and_rows_cover_every_kind():
    result = run(context_of())
    rows = result.artifacts["kerneldiff/outputs.csv"]
    assert result.status == "passed" and result.summary["numerics"].failed == 0
    assert set(rows["kind"]) == {"output", "loss", "gradient", "buffer"}
    assert {"logits", "hidden[0]", "loss", "first.weight", "norm.running_mean"} <= set(rows["path"])
    diagnosis = result.artifacts["kerneldiff/diagnosis.json"]
    assert (diagnosis.kind, diagnosis.localization) == ("none", "not needed: nothing failed")
    for name in ("kerneldiff/outputs.csv", "kerneldiff/diagnosis.json", "kerneldiff/worst.json"):
        assert encode(name, result.artifacts[name])


def test_inductor_in_bfloat16_is_no_defect():
    result = run(context_of("inductor", mode="inference", dtype=torch.bfloat16))
    assert result.status == "passed", result.message
    assert result.summary["numerics"].compared == 2


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_scaled_output_is_a_defect_and_is_drawn(mode):
    result = run(context_of("scaled", mode=mode, adapter=f"{__name__}.Scaled"), localize=LocalizeConfig(NEVER))
    assert (result.status, result.summary["numerics"].verdict) == ("failed", "defect")
    assert "defect" in verdicts(result).values()
    diagnosis = result.artifacts["kerneldiff/diagnosis.json"]
    assert diagnosis.kind is None and diagnosis.localization.endswith("localize.when=never")
    pictures = [name for name in result.artifacts if name.startswith("kerneldiff/plots/")]
    assert pictures and all(result.artifacts[name].startswith(b"\x89PNG") for name in pictures)
    worst = files.WORST.read(MemoryArtifacts(result.artifacts))
    assert worst == result.artifacts["kerneldiff/worst.json"]
    assert worst[0].worst[0].error > 0 and worst[0].verdict in ("defect", "within_floor")


def test_the_operation_at_fault_is_in_summary_diagnosis_and_table():
    result = run(context_of("planted", adapter=f"{__name__}.Planted", mode="inference"))
    assert result.summary["numerics"].first_divergence["node"] == "relu"
    diagnosis = result.artifacts["kerneldiff/diagnosis.json"]
    assert diagnosis.kind == "operation" and diagnosis.first_divergence["target"] == "aten.relu.default"
    (source,) = {culprit.place.source for culprit in diagnosis.localized.culprits}
    assert source.startswith(f"{__file__}:") and "aten.relu.default" in result.message
    rows = files.NODES.read(MemoryArtifacts(result.artifacts))
    assert [row["node"] for row in rows if row["state"] == "wrong"] == ["relu"]
    (again,) = diagnosis.localized.mended
    assert (again.operations, again.verdict) == (["g0.forward relu"], "exact")


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_pass_over_the_graph_that_changes_it_is_told(mode):
    """Each operation of what was compiled is right."""

    def swapped(graph):
        for node in graph.nodes:
            if node.target is torch.ops.aten.relu.default:
                node.target = torch.ops.aten.abs.default

    with torch._inductor.config.patch(post_grad_custom_post_pass=swapped):
        result = run(context_of("inductor", mode=mode), draws=1, plots=False)
    found = result.artifacts["kerneldiff/diagnosis.json"].localized
    assert (found.kind, found.culprits) == ("graph", [])
    assert set(found.altered) >= {"logits", "hidden[0]"} and min(found.altered.values()) > 0.1
    assert ("last.weight" in found.altered) == (mode == "training")
    assert "the graph is not the model's" in found.message


class WrongOnce(Scaled):
    """Compiles one graph, and no other."""

    compiled = 0

    def compile(self, gm, example_inputs):
        WrongOnce.compiled += 1
        if WrongOnce.compiled > 1:
            raise MemoryError("the device is full")
        return super().compile(gm, example_inputs)


def test_a_verdict_stands_where_localization_raises():
    WrongOnce.compiled = 0
    result = run(context_of("once", adapter=f"{__name__}.WrongOnce", mode="inference"), draws=1)
    assert (result.status, result.summary["numerics"].verdict) == ("failed", "defect")
    told = result.artifacts["kerneldiff/diagnosis.json"].localization
    assert told.startswith("not established: localization raised") and "the device is full" in told


def test_a_verdict_stands_where_localization_breaks_the_device(monkeypatch):
    """A kernel that reads beyond its memory does so for the rest of the process."""
    with contextlib.ExitStack() as stack:

        class Broken(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                raise torch.AcceleratorError("device-side assert triggered")

        def breaking(engine, **options):
            stack.enter_context(Broken())
            return torch.ones(1)

        monkeypatch.setattr(Engine, "run", breaking)
        result = run(context_of(adapter=f"{__name__}.Scaled"), draws=1, store_baseline=True)
    assert (result.status, result.summary["numerics"].verdict) == ("failed", "defect")
    assert any("reference" in name for name in result.artifacts)
    assert "device-side assert" in result.artifacts["kerneldiff/diagnosis.json"].localization


class EverySecond(AcceleratorAdapter):
    """Wrong at every second call of a graph."""

    def compile(self, gm, example_inputs):
        calls = []

        def run(*args):
            calls.append(None)
            first, *rest = gm(*args)
            return (first * (1.5 if len(calls) % 2 == 1 and len(calls) > 2 else 1), *rest)

        return run


def test_what_fails_in_a_later_call_alone_is_looked_at_in_that_call():
    result = run(context_of("second", adapter=f"{__name__}.EverySecond", mode="inference"))
    assert result.summary["numerics"].verdict == "defect"
    diagnosis = result.artifacts["kerneldiff/diagnosis.json"]
    assert diagnosis.kind == "operation" and diagnosis.localized.culprits
    for culprit in diagnosis.localized.culprits:
        assert culprit.shows[-1] == "in call 3 of the compiled graph, and not in the first"


@pytest.mark.parametrize(("when", "looked"), [(AFTER_DEFECT, False), (ALWAYS, True), (NEVER, False)])
def test_after_a_pass_operations_are_looked_at_on_request(when, looked):
    result = run(context_of(mode="inference"), localize=LocalizeConfig(when))
    assert result.status == "passed"
    diagnosis = result.artifacts["kerneldiff/diagnosis.json"]
    assert diagnosis.kind == "none" and (diagnosis.localized is not None) == looked
    assert ("kerneldiff/nodes.csv" in result.artifacts) == looked


def test_a_crash_is_not_established_and_its_message_is_kept():
    result = run(context_of("crashing", adapter=f"{__name__}.Crashing"))
    assert (result.status, result.summary["numerics"].verdict) == ("failed", "not_established")
    assert result.summary["numerics"].compared == 0 and result.summary["numerics"].max_abs is None
    assert "vmul.q7" in result.artifacts["kerneldiff/diagnosis.json"].error["message"]


def test_eager_against_eager_is_not_exercised():
    result = run(context_of("eager"))
    assert (result.status, result.summary["numerics"].verdict) == ("passed", "not_exercised")


def test_the_model_and_the_generators_are_left_as_found():
    context = context_of(drop=0.5)
    case = context.case
    case.module.first.weight.grad = torch.full_like(case.module.first.weight, 3.0)
    before = copy.deepcopy(case.module.state_dict())
    random, inputs = torch.get_rng_state(), case.args[0].clone()
    run(context)
    for name, value in case.module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(torch.get_rng_state(), random) and torch.equal(case.args[0], inputs)
    assert torch.equal(case.module.first.weight.grad, torch.full_like(case.module.first.weight, 3.0))
    assert case.module.last.weight.grad is None


def test_dropout_in_training_draws_alike_on_all_sides():
    result = run(context_of(drop=0.5))
    assert result.status == "passed", result.message
    assert result.artifacts["kerneldiff/diagnosis.json"].random == "all sides drew the same random numbers"


class Noisy(Net):
    """Its noise has as many bits as its dtype: left to itself gold would draw other numbers."""

    def forward(self, x):
        return {"logits": self.last(self.first(x) * torch.rand_like(self.first(x)))}


@pytest.mark.parametrize(("adapter", "verdict"), [("aot_eager", "exact"), (f"{__name__}.Scaled", "defect")])
def test_gold_repeats_the_reference_s_random_numbers(adapter, verdict):
    context = context_of("noisy", mode="inference", adapter=adapter)
    context.case.module = Noisy().eval()
    assert run(context).summary["numerics"].verdict == verdict


class Leaky(Net):
    """Draws once more in float64, and so other numbers after it."""

    def forward(self, x):
        noise = torch.rand(2 if x.dtype == torch.float64 else 1).to(x.dtype)
        return {"logits": self.last(self.first(x) * (noise[0] + torch.rand_like(x[0, 0])))}


def test_a_floor_of_different_draws_establishes_nothing():
    context = context_of("scaled", mode="inference", adapter=f"{__name__}.Scaled")
    context.case.module = Leaky().eval()
    result = run(context)
    assert (result.status, result.summary["numerics"].verdict) == ("failed", "not_established"), result.message
    assert "no noise floor" in result.message


def test_a_tolerance_decides_where_it_is_set():
    scaled = context_of("scaled", mode="inference", adapter=f"{__name__}.Scaled")
    assert run(scaled, rtol=0.01).summary["numerics"].verdict == "within_tolerance"
    assert run(scaled, rtol=1e-5).summary["numerics"].verdict == "defect"


def test_reference_in_another_dtype_is_rounded_to_the_case():
    context = context_of(mode="inference")
    context.settings.reference = ReferenceConfig(dtype="float64")
    result = run(context)
    assert result.status == "passed", result.message


def test_two_runs_agree_in_the_digest_columns():
    first, second = run(context_of()), run(context_of())
    columns = first.digest["kerneldiff/outputs.csv"]
    left, right = (result.artifacts["kerneldiff/outputs.csv"][columns] for result in (first, second))
    assert encode("a.csv", left) == encode("a.csv", right)


def test_large_integers_stay_exact_in_the_table():
    rows = [compare_tensors(2**53 + 1, 0), compare_tensors(1.0, 1.0)]
    assert str(2**53 + 1) in encode("outputs.csv", table(rows)).decode()


@pytest.mark.parametrize("shape", [(), (1,), (100_000,), (2, 3, 4, 5, 6), (512, 3, 3), (0,)])
def test_any_rank_is_drawn_and_the_worst_block_shows(shape):
    reference = torch.zeros(shape)
    test = reference.clone()
    if test.numel():
        test.view(-1)[-1] = 7.0
    canvas = canvas_of(reference, test)
    counts = count_errors(reference, test, top=canvas.top, magnitude=canvas.magnitude).bins[:-1]
    if test.numel():
        assert canvas.error[~(canvas.error != canvas.error)].max() == 7.0 and counts.sum() == 1
    rows, columns, _ = matrix_shape(shape)
    assert rows * columns >= reference.numel() and max(canvas.error.shape) <= 256
    assert draw(reference, test, compare_tensors(reference, test)).startswith(b"\x89PNG")


def test_only_a_module_of_its_own_makes_the_references_case_another() -> None:
    first, second = (
        Case("net", torch.nn.Linear(2, 2), (), {}, "inference", torch.float32, torch.device("cpu")) for _ in range(2)
    )
    assert Standard(first, Side(), Side(), origin=copy.copy(first)).others == []
    assert Standard(first, Side(), Side(), origin=second).others == [second]
