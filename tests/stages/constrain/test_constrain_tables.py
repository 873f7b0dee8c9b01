"""What the findings come to, by hand."""

import re
from dataclasses import replace

import pytest
import torch
from capture_models import case_of
from constrain_graphs import call, graph, placeholder, tensor

from inductor_debug.stages.accelerators.config import AccelConfig, Rule, Waiver
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.tables import ViolationRow
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.constrain.section import fit
from inductor_debug.stages.constrain.tables import by_rule, top_lines
from inductor_debug.stages.rules.engine import check

FORWARD = graph(
    placeholder("x", 4, 100),
    placeholder("w", 100, 24, role="parameter"),
    call("mm", "aten.mm.default", ["x", "w"], tensor(4, 24), flops=2 * 4 * 100 * 24),
    call("relu", "aten.relu.default", ["mm"], tensor(4, 24)),
    call("view", "aten.view.default", ["relu"], tensor(96), aliases=True),
)
DYNAMO = graph(placeholder("x", 4, 100), call("m", "torch.matmul", ["x"], tensor(4, 24)), kind="dynamo")


def test_shares_of_operations_bytes_and_flops() -> None:
    rules = [Rule(rule="alignment", value=16), Rule(rule="operation", value=["aten.mm"], effect="fallback")]
    graphs = [DYNAMO, FORWARD]
    table = files.BY_RULE.frame(by_rule(check(graphs, AccelConfig(rules=rules)), graphs)).set_index(["rule", "effect"])
    pad, host = table.loc[("alignment", "pad")], table.loc[("operation", "fallback")]
    # x and w are findings, and no operations; mm and relu are padded from 24 to 32, the view's 96 is a multiple
    assert (pad["findings"], pad["nodes"]) == (4, 2)
    assert pad["nodes_share"] == pytest.approx(2 / 3)
    assert pad["cost_bytes"] == 4 * 12 * 4 + 100 * 8 * 4 + 2 * 4 * 8 * 4
    assert pad["bytes_share"] == pytest.approx(pad["cost_bytes"] / ((2 * 4 * 24 + 4 * 100 + 100 * 24) * 4))  # no view
    assert (host["findings"], host["nodes"], host["flops_share"]) == (1, 1, 1.0)
    assert list(table["findings"]) == sorted(table["findings"], reverse=True)


def test_waived_findings_are_counted_apart() -> None:
    config = AccelConfig(alignment=16, waivers=[Waiver(target="aten.*", reason="accepted")])
    (row,) = by_rule(check(FORWARD, config), [FORWARD])
    assert (row.findings, row.waived, row.nodes) == (2, 2, 1)  # mm reads the padded x and w


def test_nothing_found_is_an_empty_table() -> None:
    assert len(by_rule(check(FORWARD, AccelConfig()), [FORWARD])) == 0


def test_the_lines_that_cost_most_come_first() -> None:
    one = ViolationRow("g0.forward", "mm", "", "", "alignment", "pad", "warning", "pad", 0, None)
    rows = [replace(one, source=f"a.py:{line}", cost_bytes=line) for line in range(30)]
    lines = top_lines(rows, {"a.py:29": "y = f(x)"})
    assert [line.source for line in lines] == [f"a.py:{line}" for line in range(29, 19, -1)]
    assert (lines[0].code, lines[0].rules) == ("y = f(x)", "alignment (pad)")


def test_a_line_that_the_chip_rejects_comes_before_what_only_costs() -> None:
    pad = ViolationRow("g0.forward", "mm", "", "a.py:1", "alignment", "pad", "warning", "pad", 10**6, None)
    rejected = ViolationRow("g0.forward", "conv", "", "a.py:2", "operation", "reject", "error", "replace", None, None)
    first, second = top_lines([pad, pad, rejected], {})
    assert (first.source, first.rejected, second.rejected) == ("a.py:2", 1, 0)
    open_check = replace(rejected, severity="undecided")
    assert [(line.source, line.rejected) for line in top_lines([pad, open_check], {})] == [("a.py:1", 0), ("a.py:2", 0)]
    found = {"by_severity": {"error": 1, "warning": 1}, "total": 2, "top_lines": [first, second], "strict": True,
             "by_rule": {}}  # fmt: skip
    assert ", rejected at a.py:2)" in fit(found, "chip", "").does
    assert ", the costliest at a.py:1)" in fit(found | {"top_lines": [second, second]}, "chip", "").does


TWICE = graph(
    placeholder("x", 4, 100),
    placeholder("w", 100, 24, role="parameter"),
    call("q", "aten.mm.default", ["x", "w"], tensor(4, 24), flops=10),
    call("k", "aten.mm.default", ["x", "w"], tensor(4, 24), flops=10),
)
X, W, OUT = 4 * 12 * 4, 100 * 8 * 4, 4 * 8 * 4  # bytes that padding the last dimension to a multiple of 16 adds


@pytest.mark.parametrize(
    ("rules", "costs"),
    [
        ([Rule("alignment", value=16, operations=["aten.mm"])], [X, W, OUT, 0, 0, OUT]),
        ([Rule("alignment", value=16, dims="contraction")], [X, 12 * 24 * 4, 0, 0]),
        ([Rule("alignment", value=16, dims="last"), Rule("alignment", value=16, dims="contraction")],
         [X, W, OUT, OUT, 0, 12 * 24 * 4, 0, 0]),
        ([Rule("alignment", value=16, dims="last2", operations=["aten.mm"], roles=["parameter"])],
         [12 * 24 * 4, 112 * 8 * 4, 0, 0]),
        ([Rule("dtype", value={"float32": "bfloat16"}, effect="cast", roles=["compute"])], [1600, 9600, 0, 0]),
        ([Rule("tile", value=[16], operations=["aten.mm"], roles=["parameter"])], [W, 0]),
    ],
)  # fmt: skip
def test_the_bytes_of_a_tensor_are_counted_once_however_many_read_it(rules, costs):
    violations = check(TWICE, AccelConfig(rules=rules))
    assert [row.cost_bytes for row in violations] == costs
    assert sum(row.cost_bytes for row in by_rule(violations, [TWICE])) == sum(costs)
    again = [row for row in violations if row.cost_bytes == 0]
    assert again and all(
        re.search(r" \(its bytes are counted (at|in another row of) [xqk]\)$", row.message) for row in again
    )
    assert len({row.node for row in violations} & {"q", "k"}) == 2


def test_a_waived_row_counts_nothing_for_the_others():
    waiver = Waiver(rule="alignment", target="aten.mm*", reason="accepted")
    rules = [Rule("alignment", value=16, operations=["aten.mm", "aten.add"], roles=["parameter"])]
    given = graph(*TWICE.nodes[:3], call("a", "aten.add.Tensor", ["w", "w"], tensor(100, 32)))
    rows = list(check(given, AccelConfig(rules=rules, waivers=[waiver])))
    assert [(row.node, row.severity, row.cost_bytes) for row in rows] == [("q", "waived", W), ("a", "warning", W)]


def test_one_copy_mends_strides_and_offset():
    rules = [Rule("layout", value={"stride": 16, "offset": 16})]
    rows = check(graph(placeholder("x", 4, 10, stride=(10, 1), storage_offset=3)), AccelConfig(rules=rules))
    assert [row.cost_bytes for row in rows] == [160, 0]
    assert list(rows)[1].message.endswith("(its bytes are counted in another row of x)")


def test_a_tensor_is_the_same_by_any_name():
    rules = [Rule("alignment", value=16, operations=["aten.relu", "aten.exp"])]
    norm = call("n", "aten.native_layer_norm.default", ["x"], tensor(4, 32), tensor(4, 3))
    taken = call("g", "_operator.getitem", ["n", 1], tensor(4, 3), aliases=True)
    nodes = [placeholder("x", 4, 32), norm, taken, call("d", "aten.detach.default", ["g"], tensor(4, 3), aliases=True)]
    forward = graph(*nodes, call("r", "aten.relu.default", ["d"], tensor(4, 32)),
                    call("e", "aten.exp.default", ["g"], tensor(4, 32)))  # fmt: skip
    assert [(row.node, row.cost_bytes) for row in check(forward, AccelConfig(rules=rules))] == [("r", 208), ("e", 0)]


def test_a_saved_tensor_is_its_forwards():
    rules = [Rule("alignment", value=16, dims="contraction")]
    backward = graph(placeholder("x", 4, 100, role="saved"), placeholder("t", 24, 4, role="tangent"),
                     call("b", "aten.mm.default", ["t", "x"], tensor(24, 100)), kind="backward")  # fmt: skip
    rows = [row for row in check([TWICE, backward], AccelConfig(rules=rules)) if row.graph == "g0.backward"]
    assert [(row.operand, row.cost_bytes) for row in rows] == [("args[0]", 24 * 12 * 4), ("args[1]", 12 * 100 * 4)]
    turned = [Rule("dtype", value=["float16"], roles=["compute"])]
    rows = [row for row in check([TWICE, backward], AccelConfig(rules=turned)) if row.graph == "g0.backward"]
    assert [(row.operand, row.cost_bytes) for row in rows] == [("args[0]", 24 * 4 * 4), ("args[1]", 0)]
    assert rows[1].message.endswith("(its bytes are counted at g0.forward q)")


def test_operands_in_lists_and_by_keyword_are_named_as_they_are_given():
    rules = [Rule("dtype", value=["float16"], operations=["aten.cat", "aten.addmm"])]
    parts = call("s", "aten.split.Tensor", ["x", 2], tensor(2, 8), tensor(2, 8))
    cat = call("c", "aten.cat.default", [], tensor(6, 8))
    cat.args.append([{"node": "s"}, {"node": "x"}])
    product = call("m", "aten.addmm.default", ["x"], tensor(4, 8), kwargs={"mat1": {"node": "c"}})
    rows = check(graph(placeholder("x", 4, 8), parts, cat, product), AccelConfig(rules=rules))
    assert [(row.node, row.operand) for row in rows] == [
        ("c", "args[0][0]"), ("c", "args[0][0]"), ("c", "args[0][1]"), ("c", "output"),
        ("m", "args[0]"), ("m", "args[mat1]"), ("m", "output"),
    ]  # fmt: skip


def test_what_a_backward_graph_gets_of_its_forward_is_in_no_share_twice():
    backward = graph(placeholder("w", 100, 24, role="saved"), placeholder("t", 4, 24, role="tangent"),
                     call("b", "aten.relu.default", ["t"], tensor(4, 24)), kind="backward")  # fmt: skip
    (row,) = by_rule(check([TWICE, backward], AccelConfig(alignment=16)), [TWICE, backward])
    assert row.cost_bytes == X + W + 4 * OUT
    assert row.bytes_share == pytest.approx((X + W + 4 * OUT) / (4 * (4 * 100 + 100 * 24 + 4 * 4 * 24)))


def test_lines_of_equal_cost_are_ordered_by_the_flops_that_they_lose():
    def found(line, node, share, *, graph="g0.forward", cost=0):
        what = ("operation", "fallback", "warning", "replace")
        return ViolationRow(graph, node, "", f"a.py:{line}", *what, cost, share)

    rows = [found(1, "a", 0.1), found(2, "b", 0.3), found(2, "b", 0.3), found(2, "c", 0.2),
            found(2, "d", 0.4, graph="g0.dynamo"), found(3, "e", None), found(4, "f", 0.1, cost=9)]  # fmt: skip
    rows += [found(5, "g", None, cost=cost, graph=f"g0.{kind}") for kind, cost in (("dynamo", 3), ("forward", 4))]
    lines = top_lines(rows, {})
    assert [line.cost_bytes for line in lines[:2]] == [9, 4]  # of two pictures of one line the larger
    assert lines.pop(1).source == "a.py:5"
    assert [(line.source, line.flops_share) for line in lines] == [
        ("a.py:4", 0.1), ("a.py:2", 0.5), ("a.py:1", 0.1), ("a.py:3", None),
    ]  # fmt: skip


PLACE = {"module": "q"}
LINEAR = graph(
    placeholder("x", 4, 32),
    placeholder("w", 24, 32, role="parameter"),
    call("t", "aten.t.default", ["w"], tensor(32, 24), aliases=True, **PLACE),
    call("mm", "aten.mm.default", ["x", "t"], tensor(4, 24), flops=6144, **PLACE),
    call("relu", "aten.relu.default", ["mm"], tensor(4, 24), flops=96),
)


def came_to(graphs, **accel):
    (row,) = by_rule(check(graphs, AccelConfig(**accel)), graphs)
    return row


def test_a_parameter_that_is_not_supported_takes_its_readers_along():
    rules = [Rule("dtype", effect="fallback", roles=["parameter"], value=["int8"])]
    row = came_to([LINEAR], rules=rules)
    assert (row.findings, row.nodes, row.flops) == (1, 2, 6144)  # t, a view of it, and mm
    saved = placeholder("w", 24, 32, role="saved")
    backward = graph(saved, placeholder("g", 4, 24, role="tangent"),
                     call("b", "aten.mm.default", ["g", "w"], tensor(4, 32), flops=6144), kind="backward")  # fmt: skip
    row = came_to([LINEAR, backward], rules=rules)
    assert (row.findings, row.nodes, row.flops) == (1, 3, 2 * 6144)


def dynamo(*more):
    linear = call("l", "torch.nn.functional.linear", ["x", "w"], tensor(4, 24), **PLACE)
    return graph(*LINEAR.nodes[:2], linear, *more, call("r", "torch.relu", ["l"], tensor(4, 24)), kind="dynamo")


def test_a_call_that_only_dynamo_shows_is_what_became_of_it():
    for name in ("torch.nn.functional.linear", "aten.linear"):
        row = came_to([dynamo(), LINEAR], denied=[name])
        assert (row.findings, row.nodes, row.flops, row.cost_bytes) == (1, 2, 6144, 4 * 24 * 4)
    beside = call("e", "torch.einsum", ["x", "w"], tensor(4, 24), **PLACE)  # may have become the same mm
    row = came_to([dynamo(beside), LINEAR], denied=["aten.linear"])
    assert [getattr(row, name) for name in ("nodes", "nodes_share", "flops", "flops_share", "cost_bytes")] == [None] * 5
    beside = call("e", "torch.exp", ["x"], tensor(4, 24), **PLACE)
    row = came_to([dynamo(beside), LINEAR], denied=["aten.linear"])
    assert (row.nodes, row.flops) == (1, 6144)  # whose the view is is not told


def test_of_a_denied_operation_its_backward_is_not_counted_where_it_is_not_denied():
    backward = graph(placeholder("g", 4, 24, role="tangent"), placeholder("relu", 4, 24, role="saved"),
                     call("b", "aten.threshold_backward.default", ["g", "relu", 0], tensor(4, 24), flops=96),
                     kind="backward")  # fmt: skip
    row = came_to([dynamo(), LINEAR, backward], denied=["aten.relu"])
    assert (row.findings, row.nodes, row.flops) == (2, 1, 96)


def test_no_operation_counts_twice():
    row = came_to([dynamo(), LINEAR], denied=["aten.*"])
    assert (row.findings, row.nodes, row.nodes_share, row.flops_share) == (5, 3, 1.0, 1.0)
    several = call("s", "aten.split.Tensor", ["x", 2], tensor(2, 32), tensor(2, 32), aliases=True)
    taken = call("g", "_operator.getitem", ["s", 0], tensor(2, 32), aliases=True)
    assert came_to([graph(placeholder("x", 4, 32), several, taken)], denied=["aten.*"]).nodes_share == 1


def test_a_view_of_what_was_counted_costs_nothing_more():
    views = [call("t", "aten.t.default", ["w"], tensor(32, 24), aliases=True),
             call("s", "aten.split.Tensor", ["t", 8], *[tensor(32, 8)] * 3, aliases=True),
             call("g", "_operator.getitem", ["s", 1], tensor(32, 8), aliases=True)]  # fmt: skip
    given = [graph(LINEAR.nodes[1], *views)]
    assert came_to(given, rules=[Rule("dtype", value=["int8"])]).bytes_share == 1
    assert came_to(given, denied=["aten.*"]).bytes_share == 1
    parts = Rule("size", value={"max": 31}, roles=["activation"])  # the weight is 24x32, too, but no activation
    assert [row.cost_bytes for row in check(given, AccelConfig(rules=[parts]))] == [24 * 32 * 4, 0, 0, 0]
    saved = graph(placeholder("t", 32, 24, role="saved"),
                  call("b", "aten.t.default", ["t"], tensor(24, 32), aliases=True), kind="backward")  # fmt: skip
    assert came_to([*given, saved], rules=[Rule("dtype", value=["int8"])]).bytes_share == 1
    operations = Rule("dtype", value=["int8"], operations=["aten.split"])
    rows = check(given, AccelConfig(rules=[operations]))
    assert sum(row.cost_bytes for row in rows) == 24 * 32 * 4


def test_outputs_of_one_operation_are_all_counted():
    several = call("v", "aten.var_mean.correction", ["x"], tensor(4), tensor(4))
    given = [graph(placeholder("x", 4, 32), several)]
    assert came_to(given, denied=["aten.var_mean"]).cost_bytes == 32
    assert came_to(given, rules=[Rule("dtype", value=["int8"])]).cost_bytes == 4 * 32 * 4 + 32


@pytest.mark.parametrize("layers", [2, 0])
def test_a_model_of_torchs_own_layers_has_lines_and_is_counted(layers):
    """Dynamo leaves out the frames of torch.nn.modules, so that the stack of such a model is empty."""
    module = (
        torch.nn.Sequential(*[torch.nn.Linear(10, 10) for _ in range(layers)]) if layers else torch.nn.Linear(10, 10)
    )
    graphs = capture(case_of(module, torch.randn(8, 10), mode="training")).graphs
    forward = f"torch/nn/modules/linear.py:{torch.nn.Linear.forward.__code__.co_firstlineno}"
    tensors = [node for graph in graphs for node in graph.nodes if node.op != "output" and graph.kind != "joint"]
    assert all(str(node.source).endswith(forward) for node in tensors if node.role not in ("tangent", "saved"))
    rows = check(graphs, AccelConfig(denied=["torch.nn.functional.linear"]))  # a name that Dynamo's graph alone has
    (row,) = by_rule(rows, graphs)
    assert (row.nodes_share, row.flops_share) == (1.0, 1.0)
    code = {str(node.source): node.source.code for graph in graphs for node in graph.nodes if node.source}
    begin = "def forward("
    starts = [line.code.partition(begin)[0] for line in top_lines(rows, code)]
    assert sorted(starts) == ([f"module {index}: " for index in range(layers)] or [""])


def test_a_module_path_places_what_has_no_line():
    """As captures have it that were stored before torch's own layers had lines."""

    def bare(item):
        nodes = [replace(node, source=None, module="0") for node in item.nodes]
        return replace(item, nodes=nodes)

    graphs = [bare(DYNAMO), bare(FORWARD)]
    (row,) = by_rule(check(graphs, AccelConfig(denied=["torch.matmul"])), graphs)
    assert (row.nodes, row.flops_share) == (3, 1.0)


SYMBOLS = {"s0": {"hint": 4, "min": 2, "max": None}, "s1": {"hint": 3, "min": 2, "max": 8}}
DYNAMIC = graph(
    placeholder("x", "s0", 10),
    placeholder("y", "s1", 10),
    placeholder("w", 10, 12, role="parameter"),
    call("t", "aten.t.default", ["w"], tensor(12, 10), aliases=True),
    call("mm", "aten.mm.default", ["x", "w"], tensor("s0", 12), flops=960),
    call("relu", "aten.relu.default", ["mm"], tensor("s0", 12), flops=0),
    call("cat", "aten.cat.default", [[{"node": "x"}, {"node": "y"}]], tensor("s0 + s1", 10), flops=0),
    call("sum", "aten.sum.default", ["relu"], tensor(), flops=40),
    call("last", "aten.add.Tensor", ["sum", "sum"], tensor(), flops=1000),
    symbols=SYMBOLS,
)


@pytest.mark.parametrize(
    ("value", "findings", "nodes", "flops"),
    [("static", 2, 4, 1000), ("bounded", 1, 4, 1000)],  # all but t and last; of s1 alone, which is bounded, cat
)
def test_a_symbolic_size_concerns_all_that_carry_it(value, findings, nodes, flops):
    rules = [Rule(rule="dynamic_shape", effect="fallback", value=value)]
    violations = check(DYNAMIC, AccelConfig(rules=rules))
    (row,) = by_rule(violations, [DYNAMIC])
    assert (row.findings, row.nodes, row.nodes_share) == (findings, nodes, pytest.approx(nodes / 6))
    assert (row.flops, row.flops_share) == (flops, 0.5)
    of_s0 = next(row for row in violations if row.measured == "s0")
    assert (of_s0.also, of_s0.cost_share) == (("mm", "relu", "cat", "sum"), 0.5)
    assert max(line.flops_share for line in top_lines(violations, {})) <= 1


def test_a_bounded_size_concerns_none_but_its_own():
    violations = check(DYNAMIC, AccelConfig(dynamic_shapes="static"))
    assert {row.measured: row.also for row in violations}["s1"] == ("cat",)
