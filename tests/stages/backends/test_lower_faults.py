"""Planted faults: executed by the adapter that they are planted in, found by the comparison, absent in the control."""

from typing import Any

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.faults.reductions import narrow_accumulation, to_bfloat16_values
from inductor_debug.stages.backends.faults.site import Site
from inductor_debug.stages.backends.planted import PlantedFault
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.settings import BackendConfig, Settings

from fault_models import Convolutional, Transformer  # isort: skip

PATH = "inductor_debug.stages.backends.planted.PlantedFault"


def case_of(name: str, mode: str = "training", dtype: torch.dtype = torch.float32) -> Case:
    torch._dynamo.reset()
    torch.manual_seed(0)
    module, shape = (Transformer(), (2, 16, 16)) if name == "transformer" else (Convolutional(), (4, 3, 8, 8))
    module.to(dtype).train(mode == "training")
    return Case(name, module, (torch.randn(shape).to(dtype),), {}, mode, dtype, torch.device("cpu"))


def judged(case: Case, **options: Any) -> StageResult:
    """The stage's result on ``case`` behind a planted fault, configured as on the command line."""
    dtype = str(case.dtype).removeprefix("torch.")
    settings = Settings(ModelConfig(case.name), backend=BackendConfig("x", PATH, options), mode=case.mode, dtype=dtype)
    context = StageContext(settings, MemoryArtifacts(), {"case": case})
    return KernelDiffStage(KernelDiffConfig(plots=False)).run(context)


def verdict(result: StageResult) -> str:
    return str(result.summary["numerics"].verdict)


def failed(result: StageResult) -> set[tuple[str, str]]:
    rows = result.artifacts["kerneldiff/outputs.csv"]
    return {(row.kind, row.path) for row in rows.itertuples() if row.verdict == "defect"}


FOUND = [
    ("transformer", "g0.forward", "addmm_2", "scale", {}),
    ("transformer", "g0.forward", "_softmax", "wrong_axis", {}),
    ("transformer", "g0.forward", "bmm_1", "narrow_accumulation", {"strength": 2}),
    ("transformer", "g0.backward", "mm_5", "dropped_tail", {"strength": 3}),
    ("convolutional", "g0.forward", "convolution_1", "scale", {"strength": -0.01}),
    ("convolutional", "g0.forward", "mean", "wrong_axis", {}),
    ("convolutional", "g0.forward", "addmm", "nan_at_edge", {}),
    ("convolutional", "g0.backward", "convolution_backward", "narrow_accumulation", {"output": 0}),
]
FOUND_TOO = [
    ("transformer", "g0.forward", "bmm", "dropped_tail", {}),
    ("transformer", "g0.forward", "native_layer_norm", "wrong_axis", {}),
    ("transformer", "g0.forward", "addmm_3", "narrow_accumulation", {}),
    ("transformer", "g0.forward", "gelu", "nan_at_edge", {}),
    ("transformer", "g0.backward", "mm_1", "scale", {}),
    ("transformer", "g0.backward", "_softmax_backward_data", "wrong_axis", {}),
    ("transformer", "g0.backward", "sum_1", "narrow_accumulation", {"strength": 1}),
    ("transformer", "g0.backward", "gelu_backward", "nan_at_edge", {}),
    ("convolutional", "g0.forward", "convolution_1", "narrow_accumulation", {}),
    ("convolutional", "g0.forward", "max_pool2d_with_indices", "dropped_tail", {}),
    ("convolutional", "g0.backward", "convolution_backward", "narrow_accumulation", {"output": 1, "strength": 1}),
    ("convolutional", "g0.backward", "native_batch_norm_backward", "scale", {"output": 2}),
    ("convolutional", "g0.backward", "threshold_backward", "dropped_tail", {}),
]


@pytest.mark.parametrize(
    ("model", "graph", "node", "fault", "more"),
    [*FOUND, *(pytest.param(*case, marks=pytest.mark.slow) for case in FOUND_TOO)],
)
def test_a_fault_is_a_defect(model: str, graph: str, node: str, fault: str, more: dict[str, Any]) -> None:
    result = judged(case_of(model), inner="aot_eager", graph=graph, node=node, fault=fault, **more)
    assert verdict(result) == "defect", result.message
    in_forward = {kind for kind, _ in failed(result)} & {"output", "loss"}
    assert bool(in_forward) == (graph == "g0.forward")


@pytest.mark.parametrize(
    ("model", "graph", "node", "fault"),
    [
        ("transformer", "g0.forward", "_softmax", "wrong_axis"),
        pytest.param("convolutional", "g0.backward", "convolution_backward", "nan_at_edge", marks=pytest.mark.slow),
        pytest.param("transformer", "g0.backward", "mm_5", "narrow_accumulation", marks=pytest.mark.slow),
        pytest.param("convolutional", "g0.forward", "convolution_1", "narrow_accumulation", marks=pytest.mark.slow),
    ],
)
def test_inductor_commits_the_fault(model: str, graph: str, node: str, fault: str) -> None:
    result = judged(case_of(model), inner="inductor", graph=graph, node=node, fault=fault)
    assert verdict(result) == "defect", result.message


@pytest.mark.parametrize("model", ["transformer", "convolutional"])
@pytest.mark.parametrize("inner", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_control_has_no_fault(model: str, inner: str) -> None:
    node = "addmm_2" if model == "transformer" else "convolution_1"
    result = judged(case_of(model), inner=inner, node=node, fault="none")
    assert result.status == "passed", result.message


@pytest.mark.slow
def test_faults_in_bfloat16_inference() -> None:
    for fault, strength in (("scale", 0.2), ("dropped_tail", 1), ("nan_at_edge", 1), ("narrow_accumulation", 1)):
        case = case_of("transformer", "inference", torch.bfloat16)
        result = judged(case, inner="aot_eager", node="addmm_3", fault=fault, strength=strength)
        assert verdict(result) == ("within_floor" if fault == "narrow_accumulation" else "defect"), result.message
    case = case_of("transformer", "inference", torch.bfloat16)
    assert judged(case, inner="aot_eager", node="addmm_3", fault="none").status == "passed"


def test_an_output_is_chosen() -> None:
    """The mean that a normalization saves is read by the backward alone."""
    case = case_of("transformer")
    result = judged(case, inner="aot_eager", node="native_layer_norm_1", fault="scale", output=1, strength=50)
    assert verdict(result) == "defect"
    assert {kind for kind, _ in failed(result)} == {"gradient"}


@pytest.mark.parametrize("inner", ["aot_eager", "inductor"])
def test_a_stale_buffer_is_right_once(inner: str) -> None:
    case = case_of("transformer", "inference")
    module, gold = case.module, case.to_gold().module
    adapter = PlantedFault(inner, "addmm_2", "stale_buffer")
    compiled = torch.compile(module, backend=adapter.dynamo_backend())
    found = []
    with torch.no_grad():
        for seed in range(3):
            x = torch.randn(2, 16, 16, generator=torch.Generator().manual_seed(seed))
            found.append(compare_tensors(module(x), compiled(x), gold=gold(x.double())).verdict)
    assert adapter.planted
    assert found[0] in ("exact", "within_floor") and found[1:] == ["defect", "defect"]


def test_a_stale_buffer_shows_where_the_inputs_are_others() -> None:
    result = judged(case_of("transformer"), inner="aot_eager", node="addmm_2", fault="stale_buffer")
    rows = result.artifacts["kerneldiff/outputs.csv"]
    wrong = rows[rows.verdict == "defect"]
    assert result.status == "failed" and len(wrong) and (wrong.draw > 1).all(), result.message
    assert (rows[rows.draw == 1].verdict == "exact").all()


def test_dropout_behind_inductor_draws_what_eager_draws() -> None:
    torch._dynamo.reset()
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    x = torch.randn(4, 8)
    compiled = torch.compile(module, backend=PlantedFault("inductor", "addmm", "none").dynamo_backend())
    results = []
    for function in (module, compiled):
        torch.manual_seed(3)
        results.append(function(x))
    torch.testing.assert_close(*results)


def test_nodes_are_the_captured_ones() -> None:
    """Every operation that capture names can be chosen, and a message offers the nearest of them."""
    case = case_of("transformer")
    for graph in (graph for graph in capture(case).graphs if graph.id in ("g0.forward", "g0.backward")):
        names = [node.name for node in graph.nodes if node.op == "call_function"]
        torch._dynamo.reset()
        adapter = PlantedFault("aot_eager", "getitem_x", "scale", graph.id)
        with pytest.raises(ConfigurationError) as caught:
            case.step(torch.compile(case.module, backend=adapter.dynamo_backend()))
        message = str(caught.value)
        assert f"in {graph.id}; valid: getitem" in message and f"and {len(names) - 8} more" in message
        assert not adapter.planted


def test_a_node_that_does_not_exist_stops_the_stage() -> None:
    with pytest.raises(ConfigurationError, match=r"got 'admm_2' in g0\.forward; valid: addmm_2, .*\nTry: .*=addmm_2"):
        judged(case_of("transformer"), inner="inductor", node="admm_2", fault="scale")


@pytest.mark.parametrize(
    ("mode", "graph", "valid"),
    [("training", "g1.forward", "g0.backward"), ("inference", "g0.backward", "g0.forward")],
)
def test_a_graph_that_is_never_compiled_stops_the_stage(mode: str, graph: str, valid: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"backend\.options\.graph: got '{graph}'; valid: .*{valid}"):
        judged(case_of("transformer", mode), inner="aot_eager", graph=graph, node="addmm_2", fault="scale")


@pytest.mark.parametrize(
    ("model", "node", "fault", "output", "message"),
    [
        ("transformer", "addmm_2", "wrong_axis", 0, r"aten\.addmm.*along no dimension.*valid: aten\._softmax"),
        ("convolutional", "_native_batch_norm_legit_functional", "wrong_axis", 0, "along no dimension"),
        ("transformer", "gelu", "narrow_accumulation", 0, r"accumulates nothing; valid: aten\.mm"),
        ("convolutional", "max_pool2d_with_indices", "scale", 1, r"value is torch\.int64"),
        ("convolutional", "max_pool2d_with_indices", "nan_at_edge", 1, r"value is torch\.int64"),
        ("transformer", "addmm_2", "scale", 1, r"backend\.options\.output: got 1; valid: 0"),
        ("transformer", "native_layer_norm", "scale", 3, r"output: got 3; valid: 0, 1, 2"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(model: str, node: str, fault: str, output: int, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        judged(case_of(model), inner="aot_eager", node=node, fault=fault, output=output)


def test_wrong_axis_needs_another_dimension_of_that_size() -> None:
    torch._dynamo.reset()
    norm, x = torch.nn.LayerNorm(16), torch.randn(2, 8, 16)
    compiled = torch.compile(norm, backend=PlantedFault("eager", "native_layer_norm", "wrong_axis").dynamo_backend())
    with pytest.raises(ConfigurationError, match=r"\[2, 8, 16\] has no other dimension of size 16"):
        compiled(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fault": "sclae"}, r"backend\.options\.fault: got 'sclae'; valid: scale"),
        ({"graph": "g0.joint"}, r"graph: got 'g0\.joint'; valid: gN\.forward or gN\.backward"),
        ({"inner": "inductr"}, r"got 'inductr'; valid: inductor"),
        ({"strength": "much"}, r"strength: got 'much' for scale"),
        ({"fault": "dropped_tail", "strength": 0}, "a whole number, 1 or more"),
        ({"fault": "dropped_tail", "strength": 1.5}, "a whole number, 1 or more"),
        ({"inner": "inductor", "inductor": {"pattern_macher": False}}, r"pattern_macher"),
    ],
)
def test_wrong_options_are_configuration_errors(options: dict[str, Any], message: str) -> None:
    config = BackendConfig("x", PATH, {"inner": "aot_eager", "node": "mm", "fault": "scale"} | options)
    with pytest.raises(ConfigurationError, match=message):
        build_adapter(config).validate()


def test_a_part_of_a_graph_has_the_fault_too() -> None:
    """As localization runs it: one operation of the graph, by its name, through ``compile`` alone."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.create_node("call_function", torch.ops.aten.relu.default, (x,), name="relu_7"),))
    gm, value = torch.fx.GraphModule({}, graph), torch.tensor([1.0, -1.0])
    for node, expected in (("relu_7", 3.0), ("relu_8", 1.0)):
        (result,) = PlantedFault("eager", node, "scale", strength=2).compile(gm, [value])(value)
        assert result.tolist() == [expected, 0.0]


def test_rounding_by_bits_is_the_format() -> None:
    values = torch.cat([torch.randn(1000), torch.tensor([0.0, -0.0, 1.00390625, 1.01171875, 3e38, float("inf")])])
    assert torch.equal(to_bfloat16_values(values), values.to(torch.bfloat16).to(torch.float32))


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dims", [[1], [0], [0, 1]])
def test_narrow_accumulation_adds_blocks_of_the_longest_dimension_up_in_bfloat16(dims: list[int], keep: bool) -> None:
    x = torch.randn(50, 300, generator=torch.Generator().manual_seed(0))
    right = x.sum(dims, keepdim=keep)
    site = Site(torch.ops.aten.sum.dim_IntList, (x, dims, keep), {}, right, None, 16.0)
    total = torch.zeros_like(right)
    for block in x.split(16, 1 if 1 in dims else 0):
        total = (total + block.sum(dims, keepdim=keep)).to(torch.bfloat16).to(torch.float32)
    assert torch.equal(narrow_accumulation(site), total) and not torch.equal(total, right)
