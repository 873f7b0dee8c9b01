"""What the report's graphs are drawn from: levels and links, marks, folding, columns."""

import json

import pytest
from small_explorer import FORWARD, explored, graph, mapped, node

from inductor_debug.stages.contract import MemoryArtifacts
from inductor_debug.stages.graph_pictures.flow import Flow
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.report.explorer.encoding import encoded
from inductor_debug.stages.report.explorer.folding import MOST, Group, folded
from inductor_debug.stages.report.explorer.layers import layers
from inductor_debug.stages.report.explorer.marks import marks


def drawn(content):
    """What the script is given of stored files."""
    artifacts = MemoryArtifacts(content)
    shown, damaged = layers(artifacts)
    assert damaged == []
    return json.loads(json.dumps(encoded(shown, marks(shown, artifacts)), allow_nan=False))


def flow_of(*nodes):
    return Flow(GraphRecord.from_json(graph("g0.forward", *nodes)))


def tree_of(flow):
    def names(parts):
        return [flow.operations[part].name if isinstance(part, int) else (part.title, names(part.parts))
                for part in parts]  # fmt: skip

    return names(folded(flow, lambda number: flow.operations[number].name))


def test_levels_stand_from_the_model_to_its_kernels():
    data = drawn(explored())
    assert [item["title"] for item in data["graphs"]] == [
        "g0 Dynamo", "g0 AOT forward", "g0 forward, post-grad", "g0 forward, kernels", "g0 AOT backward"]  # fmt: skip
    assert [item["level"] for item in data["graphs"]] == [0, 1, 2, 3, 1]


def test_each_level_is_linked_to_what_it_came_of():
    data = drawn(explored())
    graphs = data["graphs"]

    def came_of(number, name):
        item = graphs[number]
        pairs = item["up"][item["names"].index(name)]
        return [(graphs[g]["id"], graphs[g]["names"][n]) for g, n in zip(pairs[::2], pairs[1::2], strict=True)]

    assert came_of(1, "addmm") == [("g0.dynamo", "linear")]
    assert came_of(2, "mul") == [("g0.forward", "relu")]  # by nodes.json
    assert came_of(2, "made_by_a_pass") == [("g0.dynamo", "linear")]  # of what no captured node is known, Dynamo's
    assert came_of(3, "cpp_fused_relu_0:2") == [("g0.forward post-grad", "mul"), ("g0.forward post-grad", "maximum")]
    assert came_of(4, "threshold_backward") == [("g0.dynamo", "relu")]


def test_a_constant_made_for_another_operation_links_a_kernel_to_none():
    """TorchInductor makes one 0 for all layers: the others' kernels do not come from the first one's operation."""
    content = explored()
    provenance = content["lower/g0.forward/provenance.json"]
    for kernel, captured in zip(provenance["kernels"], ("addmm", "relu"), strict=True):
        kernel["captured"] = [{"graph": "g0.forward", "node": captured}]
    provenance["kernels"][0]["nodes"] = ["mul", "made_by_a_pass"]  # mul was made for relu alone
    graphs = drawn(content)["graphs"]
    pairs = graphs[3]["up"][graphs[3]["names"].index("extern_kernels.addmm:1")]
    names = [(graphs[g]["id"], graphs[g]["names"][n]) for g, n in zip(pairs[::2], pairs[1::2], strict=True)]
    assert names == [("g0.forward post-grad", "made_by_a_pass")]


def test_a_launch_reads_the_launches_that_wrote_its_buffers():
    kernels = drawn(explored())["graphs"][3]
    assert kernels["names"] == ["extern_kernels.addmm:1", "cpp_fused_relu_0:2"]
    assert kernels["reads"] == [[], [0]]
    assert kernels["values"] == []


def test_a_finding_at_a_parameter_is_told_of_what_reads_it():
    data = drawn(explored())
    told = [[data["graphs"][g]["names"][n], data["texts"][rows[0][0]], count]
            for g, n, rows, count in data["findings"]]  # fmt: skip
    assert told == [["addmm", "pad", 1]]  # of the weight; the waived one is none
    values = {name: readers for name, _, readers in data["graphs"][1]["values"]}
    assert values["primals_1"] == [data["graphs"][1]["names"].index("addmm")]


def test_errors_stand_at_the_compared_value_and_the_culprit_is_told():
    data = drawn(explored())
    told = {data["graphs"][g]["names"][n]: (data["graphs"][g]["level"], data["texts"][state], ratio, culprit)
            for g, n, state, ratio, _, culprit in data["errors"]}  # fmt: skip
    assert told == {"mul": (2, "right", 0.5, False), "maximum": (2, "wrong", 1e300, True)}  # an infinite ratio is JSON


def test_flops_are_counted_at_one_level_alone():
    data = drawn(explored())
    assert [(data["graphs"][g]["level"], flops) for g, _, flops in data["flops"]] == [(1, 4096)]
    alone = explored()
    del alone["capture/graphs/g0.forward.json"], alone["capture/graphs/g0.backward.json"]
    data = drawn(alone)
    assert [(data["graphs"][g]["level"], flops) for g, _, flops in data["flops"]] == [(0, 2048)]


def test_times_are_of_launches_and_of_operations_where_there_are_no_kernels():
    data = drawn(explored())
    assert [(data["graphs"][g]["names"][n], time, share) for g, n, time, share in data["times"]] == [
        ("extern_kernels.addmm:1", 30.0, 0.75), ("cpp_fused_relu_0:2", 10.0, None)]  # fmt: skip
    header = "graph,kernel,handle,kind,launches,time_us,share\n"
    eager = {"capture/graphs/g0.forward.json": FORWARD,
             "profile/kernels.csv": f"{header}g0.forward,aten.relu.default relu,,operation,1,5.0,0.5\n"}  # fmt: skip
    data = drawn(eager)
    assert [(data["graphs"][g]["names"][n], time) for g, n, time, _ in data["times"]] == [("relu", 5.0)]


def test_a_damaged_graph_is_named_and_the_others_are_shown():
    content = explored() | {"capture/graphs/g0.backward.json": {"id": "g0.other"}}
    shown, damaged = layers(MemoryArtifacts(content))
    assert damaged == ["g0.backward"]
    assert "g0 AOT forward" in [layer.title for layer in shown]


def test_results_taken_apart_are_in_their_makers_box():
    several = node("split", module="m") | {"outputs": [{"shape": [2], "dtype": "float32", "stride": [1],
                                                        "device": "cpu"}] * 2}  # fmt: skip
    taken = node("getitem", target="_operator.getitem", inputs=["split"])
    data = drawn({"capture/graphs/g0.forward.json": graph("g0.forward", several, taken,
                                                          node("relu", inputs=["getitem"]))})  # fmt: skip
    assert data["graphs"][0]["names"] == ["split", "relu"]
    assert data["graphs"][0]["reads"] == [[], [0]]


def test_modules_are_groups_within_groups():
    flow = flow_of(node("a", module="layer.0.dense"), node("b", module="layer.0.dense", inputs=["a"]),
                   node("c", module="layer.0", inputs=["b"]), node("d", module="layer.1", inputs=["c"]),
                   node("e", module="layer.1", inputs=["d"]), node("f", inputs=["e"]))  # fmt: skip
    assert tree_of(flow) == [("layer", [("0", [("dense", ["a", "b"]), "c"]), ("1", ["d", "e"])]), "f"]


def test_a_module_left_and_entered_again_is_two_visits():
    flow = flow_of(node("a", module="act"), node("b", module="act", inputs=["a"]), node("c", inputs=["b"]),
                   node("d", module="act", inputs=["c"]), node("e", module="act", inputs=["d"]))  # fmt: skip
    assert tree_of(flow) == [("act", ["a", "b"]), "c", ("act, visit 2", ["d", "e"])]


@pytest.mark.parametrize("count", [MOST + 1, 1000])
def test_without_modules_what_follows_each_other_is_put_together(count):
    flow = flow_of(*(node(f"n{index}", inputs=[f"n{index - 1}"] if index else []) for index in range(count)))
    found = folded(flow, lambda number: flow.operations[number].name)

    def visit(parts):
        assert len(parts) <= MOST
        for part in parts:
            if isinstance(part, Group):
                yield from visit(part.parts)
            else:
                yield part

    assert list(visit(found)) == list(range(count))
    assert isinstance(found[0], Group) and found[0].title.startswith("n0 … n")


def test_stored_runs_of_before_have_graphs_without_lines():
    content = explored()
    before = [{key: value for key, value in item.items() if key not in ("inputs", "outputs")} for item in mapped()]
    content["lower/g0.forward/nodes.json"] = {"nodes": before}
    assert drawn(content)["graphs"][2]["reads"] == [[], [], []]
