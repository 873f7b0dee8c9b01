"""Captured graphs against graphs derived by hand."""

import json

import capture_models
import pytest
import torch
from capture_models import Broken, Small, case_of, line_of
from torch import nn

from inductor_debug.stages.capture.compilation import Capture, capture
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord


def calls(graph: GraphRecord) -> list[NodeRecord]:
    return [node for node in graph.nodes if node.op.startswith("call_")]


@pytest.fixture(scope="module")
def small() -> tuple[Small, Capture]:
    module = Small()
    return module, capture(case_of(module, torch.ones(5, 4), mode="training"))


@pytest.fixture(scope="module")
def broken() -> tuple[Broken, Capture]:
    module = Broken()
    return module, capture(case_of(module, torch.randn(5, 4), scale=torch.ones(8), mode="training"))


def test_one_training_step_gives_four_graphs(small: tuple[Small, Capture]) -> None:
    assert [graph.id for graph in small[1].graphs] == ["g0.dynamo", "g0.joint", "g0.forward", "g0.backward"]


def test_dynamo_targets_are_public_python_names(small: tuple[Small, Capture]) -> None:
    targets = [node.target for node in calls(small[1].graph("g0.dynamo"))]
    assert targets == ["torch.nn.functional.linear", "torch.relu", "torch.nn.functional.layer_norm"]


def test_forward_nodes_are_exactly_these(small: tuple[Small, Capture]) -> None:
    module, found = small
    linear, relu, norm = (line_of(module, marker) for marker in ("linear", "relu", "norm"))
    rows = [
        (node.target, [tensor.shape for tensor in node.outputs], node.module, node.source.line if node.source else None)
        for node in calls(found.graph("g0.forward"))
        if node.target != "aten.detach.default"
    ]
    assert rows == [
        ("aten.t.default", [[4, 8]], "first", linear),
        ("aten.addmm.default", [[5, 8]], "first", linear),
        ("aten.relu.default", [[5, 8]], "", relu),
        ("aten.native_layer_norm.default", [[5, 8], [5, 1], [5, 1]], "norm", norm),
        ("_operator.getitem", [[5, 8]], "norm", norm),
        ("_operator.getitem", [[5, 1]], "norm", norm),
        ("_operator.getitem", [[5, 1]], "norm", norm),
    ]


def test_backward_nodes_point_at_the_forward_line(small: tuple[Small, Capture]) -> None:
    module, found = small
    lines = {node.target: node.source.line for node in calls(found.graph("g0.backward")) if node.source}
    assert lines["aten.native_layer_norm_backward.default"] == line_of(module, "norm")
    assert lines["aten.threshold_backward.default"] == line_of(module, "relu")
    assert lines["aten.mm.default"] == line_of(module, "linear")
    assert all(node.source and node.source.file == capture_models.__file__
               for node in calls(found.graph("g0.backward")))  # fmt: skip


def test_backward_modules_are_the_forward_ones(small: tuple[Small, Capture]) -> None:
    modules = {node.target: node.module for node in calls(small[1].graph("g0.backward"))}
    assert modules["aten.mm.default"] == "first"
    assert modules["aten.native_layer_norm_backward.default"] == "norm"


def test_placeholders_know_their_roles_and_names(small: tuple[Small, Capture]) -> None:
    forward = [(n.target, n.role) for n in small[1].graph("g0.forward").nodes if n.op == "placeholder"]
    assert forward == [
        ("first.weight", "parameter"),
        ("first.bias", "parameter"),
        ("x", "input"),
        ("norm.weight", "parameter"),
        ("norm.bias", "parameter"),
    ]
    backward = {n.role for n in small[1].graph("g0.backward").nodes if n.op == "placeholder"}
    assert backward == {"parameter", "input", "saved", "tangent"}


def test_metadata_strides_views_and_flops(small: tuple[Small, Capture]) -> None:
    nodes = {node.target: node for node in calls(small[1].graph("g0.forward"))}
    transposed, product = nodes["aten.t.default"], nodes["aten.addmm.default"]
    assert (transposed.outputs[0].stride, transposed.aliases, transposed.flops) == ([1, 4], True, None)
    assert (product.outputs[0].stride, product.aliases, product.flops) == ([8, 1], False, 2 * 5 * 4 * 8)
    assert (product.outputs[0].dtype, product.outputs[0].device) == ("float32", "cpu")
    assert product.args == [{"node": name} for name in product.inputs]


def test_attention_on_the_cpu_has_flops_both_ways() -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, k, v)

    tensors = [torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3)]
    found = capture(case_of(Attention(), *tensors, mode="training"))
    flops = {n.target: n.flops for g in ("g0.forward", "g0.backward") for n in calls(found.graph(g)) if n.flops}
    one_product = 2 * 2 * 8 * 8 * 4  # 2 heads, 8x8 scores of width 4, a multiply-add is two
    assert flops == {
        "aten._scaled_dot_product_flash_attention_for_cpu.default": 2 * one_product,
        "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": 5 * one_product,
    }


def test_several_graphs_each_with_its_own_backward(broken: tuple[Broken, Capture]) -> None:
    module, found = broken
    assert [found.count(kind) for kind in ("dynamo", "joint", "forward", "backward")] == [3, 3, 3, 3]
    expected = {"g0.backward": {"first"}, "g1.backward": {"batch"}, "g2.backward": {"max", "split", "last"}}
    for id, markers in expected.items():  # autograd compiles them in the order g2, g1, g0
        lines = {node.source.line for node in calls(found.graph(id)) if node.source}
        assert lines == {line_of(module, marker) for marker in markers}, id


def test_buffers_and_keyword_inputs(broken: tuple[Broken, Capture]) -> None:
    roles = {n.target: n.role for n in broken[1].graph("g1.forward").nodes if n.op == "placeholder"}
    assert roles["batch.running_mean"] == roles["batch.num_batches_tracked"] == "buffer"
    assert [n.target for n in broken[1].graph("g0.dynamo").nodes if n.role == "input"] == ["x", "scale"]


def test_multi_output_nodes_have_every_tensor(broken: tuple[Broken, Capture]) -> None:
    nodes = {node.target: node for node in calls(broken[1].graph("g2.forward"))}
    assert [(t.shape, t.dtype) for t in nodes["aten.max.dim"].outputs] == [([5], "float32"), ([5], "int64")]
    split = nodes["aten.split.Tensor"]
    assert ([t.shape for t in split.outputs], [t.storage_offset for t in split.outputs]) == ([[5, 4], [5, 4]], [0, 4])
    assert split.aliases


def test_module_is_left_as_it_was() -> None:
    module = Broken()
    case = case_of(module, torch.randn(5, 4), scale=torch.ones(8), mode="training")
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.get_rng_state()
    capture(case)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_symbolic_sizes_keep_hints_and_ranges() -> None:
    found = capture(case_of(Small(), torch.ones(5, 4)), dynamic=True)
    graph = found.graph("g0.forward")
    product = next(node for node in graph.nodes if node.target == "aten.addmm.default")
    (symbol,) = graph.symbols
    assert product.outputs[0].shape == [symbol, 8]
    assert (product.outputs[0].hints, product.flops) == ([5, 8], 320)
    assert graph.symbols[symbol]["hint"] == 5
    assert graph.symbols[symbol]["min"] == 2


def test_records_survive_json(broken: tuple[Broken, Capture]) -> None:
    for graph in broken[1].graphs:
        again = GraphRecord.from_json(json.loads(json.dumps(graph.to_json(), allow_nan=False)))
        assert again == graph


def test_nodes_inherited_from_helpers_of_a_library_point_at_its_model_file() -> None:
    import transformers

    from inductor_debug.stages.graphs.records import SourceLine
    from inductor_debug.stages.graphs.sources import SourceFinder

    root = transformers.__path__[0]
    model = SourceLine(f"{root}/models/bert/modeling_bert.py", 10)
    frames = [SourceLine("/home/user/train.py", 3), model, SourceLine(f"{root}/activations.py", 20)]
    frames.append(SourceLine(f"{torch.__path__[0]}/nn/functional.py", 30))
    assert SourceFinder(nn.Linear(1, 1)).own_frame(frames) == model


def test_a_marked_size_is_symbolic_with_its_range() -> None:
    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 0, min=4, max=64)
    case = case_of(nn.Linear(4, 4), x)
    for found in (capture(case), capture(case.to_gold())):
        for graph in found.graphs:
            (symbol,) = graph.symbols.values()
            assert symbol == {"hint": 6, "min": 4, "max": 64}, graph.id
