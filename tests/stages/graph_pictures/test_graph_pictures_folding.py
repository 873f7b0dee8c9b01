"""Folding: every operation in one box, and no cycle between boxes, whatever modules the operations are in."""

from collections import Counter
from graphlib import TopologicalSorter

import pytest
from constrain_graphs import tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_geometry import boxes, check, parse

from inductor_debug.stages.graph_pictures import draw_graph
from inductor_debug.stages.graph_pictures.flow import Flow
from inductor_debug.stages.graph_pictures.grouping import Box, all_boxes, fold
from inductor_debug.stages.graphs.records import GETITEM, GraphRecord, NodeRecord


def call(name, module, *reads, target="aten.relu.default", outputs=1, **more):
    return NodeRecord(name, "call_function", target, [{"node": read} for read in reads], inputs=list(reads),
                      outputs=[tensor(4, 8) for _ in range(outputs)], module=module, **more)  # fmt: skip


def graph(*nodes, kind="forward"):
    first = NodeRecord("x", "placeholder", "x", outputs=[tensor(4, 8)], role="input")
    last = NodeRecord("output", "output", "output", inputs=[nodes[-1].name])
    return GraphRecord(f"g0.{kind}", kind, [first, *nodes, last])


def folded(*nodes, kind="forward", budget=12):
    flow = Flow(graph(*nodes, kind=kind))
    return flow, fold(flow, budget, small=0)


def names(flow, box):
    return [flow.operations[number].name for number in box.numbers]


def assert_acyclic(flow: Flow, found: list[Box]) -> None:
    """By its own way, not the one that folding takes; and readers come after what they read."""
    home = {number: index for index, box in enumerate(found) for number in box.numbers}
    above = {index: {home[read] for number in box.numbers for read in flow.reads[number] if read in home} - {index}
             for index, box in enumerate(found)}  # fmt: skip
    list(TopologicalSorter(above).static_order())  # CycleError
    assert all(source < index for index, sources in above.items() for source in sources)
    for box in found:
        if box.inside:
            assert sorted(number for inner in box.inside for number in inner.numbers) == sorted(box.drawn)
            assert_acyclic(flow, box.inside)


def residual(index: int, last: str) -> list[NodeRecord]:
    """A residual block: its own sum lies between its children, and one ReLU is called twice."""
    path = f"blocks.{index}"
    return [
        call(f"conv_a_{index}", f"{path}.conv_a", last, target="aten.convolution.default"),
        call(f"relu_a_{index}", f"{path}.relu", f"conv_a_{index}"),
        call(f"conv_b_{index}", f"{path}.conv_b", f"relu_a_{index}", target="aten.convolution.default"),
        call(f"add_{index}", path, f"conv_b_{index}", last, target="aten.add.Tensor"),
        call(f"relu_b_{index}", f"{path}.relu", f"add_{index}"),
    ]


def test_a_module_called_twice_is_two_boxes():
    flow, found = folded(*residual(0, "x"), call("head", "head", "relu_b_0"))
    block = [box for box in all_boxes(found) if box.path[-1:] == ("relu",)]
    assert [(names(flow, box), box.visit) for box in block] == [(["relu_a_0"], 1), (["relu_b_0"], 2)]
    assert_acyclic(flow, found)


def test_a_folded_block_keeps_its_own_sum():
    flow, found = folded(*residual(0, "x"), *residual(1, "relu_b_0"), call("head", "head", "relu_b_1"), budget=3)
    assert [names(flow, box)[0] for box in found] == ["conv_a_0", "conv_a_1", "head"]
    assert [len(box.numbers) for box in found] == [5, 5, 1]


def test_a_module_entered_again_after_another_is_two_visits():
    nodes = [call("a", "m.p", "x"), call("b", "n", "a"), call("c", "m.q", "b")]
    flow, found = folded(*nodes, budget=3)
    assert [names(flow, box) for box in found] == [["a"], ["b"], ["c"]]
    assert_acyclic(flow, found)


def test_parallel_visits_of_a_shared_module_stay_apart():
    nodes = [call("a", "left", "x"), call("a2", "shared", "a"), call("b", "right", "x"), call("b2", "shared", "b")]
    flow, found = folded(*nodes)
    assert sorted(names(flow, box) for box in found) == [["a"], ["a2"], ["b"], ["b2"]]


def test_equal_layers_are_one_stack_unfolded_once():
    nodes = [call("first", "stem", "x")]
    for index in range(5):
        nodes += residual(index, nodes[-1].name)
    flow, found = folded(*nodes, call("head", "head", nodes[-1].name))
    (stack,) = [box for box in found if box.members]
    assert [".".join(path) for path in stack.paths] == [f"blocks.{index}" for index in range(5)]
    assert [len(names(flow, box)) for box in found] == [1, 25, 1]
    assert [names(flow, box) for box in stack.inside] == [[f"{name}_0"] for name in
            ("conv_a", "relu_a", "conv_b", "add", "relu_b")]  # fmt: skip
    stands = {flow.operations[number].name for number in stack.inside[3].stands}
    assert stands == {f"add_{index}" for index in range(5)}


@pytest.mark.parametrize("change", ["target", "shape", "argument", "wiring"])
def test_a_layer_that_differs_is_no_part_of_the_stack(change):
    nodes = [call("first", "stem", "x")]
    for index in range(5):
        block = residual(index, nodes[-1].name)
        if index == 2:
            odd = {
                "target": call("conv_b_2", "blocks.2.conv_b", "relu_a_2", target="aten.mm.default"),
                "shape": call("conv_b_2", "blocks.2.conv_b", "relu_a_2", target="aten.convolution.default", outputs=2),
                "argument": call("conv_b_2", "blocks.2.conv_b", "relu_a_2", target="aten.convolution.default",
                                 kwargs={"groups": 2}),
                "wiring": call("conv_b_2", "blocks.2.conv_b", "conv_a_2", target="aten.convolution.default"),
            }  # fmt: skip
            block[2] = odd[change]
        nodes += block
    _, found = folded(*nodes)
    assert not [box for box in found if len(box.paths) > 2]


def test_a_sum_of_gradients_is_drawn_in_the_layer_of_what_was_added_last():
    nodes = [call("g0", "layers.1.norm", "x"), call("g1", "layers.0.norm", "g0"),
             call("sum", "", "g0", "g1", target="aten.add.Tensor")]  # fmt: skip
    assert Flow(graph(*nodes, kind="backward")).paths[2] == ("layers", "0")
    assert Flow(graph(*nodes, kind="forward")).paths[2] == ()


def test_a_joint_graphs_forward_and_backward_share_no_box():
    tangent = NodeRecord("tangents_1", "placeholder", "tangents_1", outputs=[tensor(4, 8)], role="tangent")
    nodes = [call("f", "net", "x"), call("kept", "net", "f", target="aten.detach.default", aliases=True),
             call("loss", "head", "f"), call("b", "net", "tangents_1", "kept")]  # fmt: skip
    record = graph(*nodes, kind="joint")
    record.nodes.insert(1, tangent)
    record.nodes[-1] = NodeRecord("output", "output", "output", inputs=["loss", "b"])
    flow = Flow(record)
    found = fold(flow, small=0)
    assert [(names(flow, box), box.backward) for box in found] == [
        (["f"], False), (["loss"], False), (["kept", "b"], True),
    ]  # fmt: skip


def test_a_graph_without_modules_is_parted_by_order():
    nodes = [call("n0", "", "x")]
    nodes += [call(f"n{index}", "", f"n{index - 1}") for index in range(1, 300)]
    flow, found = folded(*nodes, budget=20)
    assert 5 <= len(found) <= 20
    assert [name for box in found for name in names(flow, box)] == [node.name for node in nodes]
    assert {part.texts[0] for part in boxes(parse(draw_graph(flow.record)))} >= {"operations 1 … 13"}


PATHS = st.sampled_from(
    ["", "a", "a.0", "a.1", "a.2", "a.0.p", "a.1.p", "a.2.p", "a.0.q", "a.1.q", "a.2.q", "b", "b.p", "b.p.0", "c"]
)


@st.composite
def records(draw):
    """Any wiring and any modules, items of several results, tangents in joint graphs."""
    kind = draw(st.sampled_from(["dynamo", "forward", "backward", "joint"]))
    roles = {"x": "input", "w": "parameter", "s": "saved", "t": "tangent"}
    nodes = [NodeRecord(name, "placeholder", name, outputs=[tensor(4, 8)], role=role) for name, role in roles.items()]
    for index in range(draw(st.integers(0, 45))):
        reads = draw(st.lists(st.sampled_from(nodes), max_size=3, unique_by=lambda node: node.name))
        several = [node for node in reads if len(node.outputs) > 1]
        if several:
            nodes.append(call(f"n{index}", draw(PATHS), several[0].name, target=GETITEM))
            continue
        target = draw(st.sampled_from(["aten.add.Tensor", "aten.mm.default", "aten.split.Tensor"]))
        outputs = 2 if "split" in target else draw(st.integers(0, 1))
        nodes.append(call(f"n{index}", draw(PATHS), *(node.name for node in reads), target=target, outputs=outputs,
                          aliases=draw(st.booleans())))  # fmt: skip
    ends = draw(st.lists(st.sampled_from(nodes), max_size=6, unique_by=lambda node: node.name))
    nodes.append(NodeRecord("output", "output", "output", inputs=[node.name for node in ends]))
    return GraphRecord(f"g0.{kind}", kind, nodes)


@settings(max_examples=120, deadline=None)
@given(records(), st.integers(1, 30), st.sampled_from([0, 60]))
def test_any_graph_folds_to_one_without_cycles_and_is_drawn(record, budget, small):
    flow = Flow(record)
    assert all(read < number for number, reads in enumerate(flow.reads) for read in reads)
    found = fold(flow, budget, small)
    assert sorted(number for box in found for number in box.numbers) == list(range(len(flow.operations)))
    assert_acyclic(flow, found)
    closed = Counter(number for box in all_boxes(found) if not box.inside for number in box.stands)
    assert closed == Counter(range(len(flow.operations)))

    picture = draw_graph(record, budget=budget, small=small)
    assert draw_graph(GraphRecord.from_json(record.to_json()), budget=budget, small=small) == picture
    drawn = parse(picture)
    check(drawn)
    shown = sorted(name for box in boxes(drawn) for name in box.nodes or [])
    assert shown == sorted(node.name for node in flow.operations)
