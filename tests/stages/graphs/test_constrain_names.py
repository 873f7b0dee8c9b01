"""One deny list for Dynamo's graphs and for aten graphs."""

import inspect
from dataclasses import replace

import pytest
import torch

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.operation_lists import unfamiliar
from inductor_debug.stages.accelerators.profile import Profile, validate_profile
from inductor_debug.stages.constrain.tables import by_rule
from inductor_debug.stages.graphs.operation_names import IN_PLACE_POSITION
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine, TensorRecord
from inductor_debug.stages.rules.engine import check

LIBRARY = torch.library.Library("rules_test", "FRAGMENT")
LIBRARY.define("op(Tensor x) -> Tensor")
LIBRARY.impl("op", lambda x: x.clone(), "CompositeExplicitAutograd")
LIBRARY.impl("op", torch.empty_like, "Meta")


def denied(pattern, target, *, kind="dynamo", op="call_function", args=(), kwargs=None):
    node = NodeRecord("n", op, target, args=list(args), kwargs=kwargs or {})
    return [row.severity for row in check(GraphRecord(f"g0.{kind}", kind, [node]), AccelConfig(denied=[pattern]))]


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("aten.relu", "torch.nn.functional.relu"),
        ("aten.relu", "torch.relu"),
        ("aten.relu.default", "torch.relu"),
        ("aten::relu", "torch.relu"),
        ("relu", "torch.relu"),
        ("aten.convolution", "torch.conv2d"),
        ("aten.convolution", "torch.nn.functional.conv_transpose1d"),
        ("aten.gelu", "torch._C._nn.gelu"),
        ("aten.add", "_operator.add"),
        ("operator.add", "_operator.add"),
        ("operator.*", "_operator.mul"),
        ("aten.add_", "_operator.iadd"),
        ("aten.div", "_operator.truediv"),
        ("aten.linalg_lu_factor", "torch._C._linalg.linalg_lu_factor"),
        ("aten.linalg_lu_factor", "torch.linalg.lu_factor"),
        ("aten.native_layer_norm", "torch.nn.functional.layer_norm"),
        ("torch.nn.functional.relu", "torch.nn.functional.relu"),
        ("torch.nn.functional.*", "torch.nn.functional.relu"),
        ("aten.conv*", "torch.conv2d"),
        ("aten._linalg_solve_ex", "torch._C._linalg.linalg_solve"),
        ("aten.linalg_inv_ex", "torch.inverse"),
        ("aten._linalg_slogdet", "torch.logdet"),
    ],
)
def test_an_aten_name_finds_the_python_callable(pattern, target):
    assert denied(pattern, target) == ["warning"]


@pytest.mark.parametrize(
    ("pattern", "target"),
    [
        ("aten.relu", "torch.nn.functional.prelu"),
        ("aten.relu_", "torch.relu"),
        ("aten.relu", "torch.nn.functional.relu6"),
        ("aten.convolution", "torch.nn.functional.linear"),
        ("torch.conv2d", "torch.conv1d"),
    ],
)
def test_it_finds_no_other(pattern, target):
    assert denied(pattern, target) == []


X = NodeRecord("x", "placeholder", "x", outputs=[TensorRecord([4, 4], "float32", [4, 1], "cpu")])


def checked(accel, target, dispatched=None, *, kind="dynamo", op="call_function", kwargs=None):
    """(severity, limit) of the rows of a graph with one call on a tensor."""
    node = NodeRecord("n", op, target, args=[{"node": "x"}], kwargs=kwargs or {}, inputs=["x"], outputs=X.outputs,
                      dispatched=dispatched)  # fmt: skip
    return [(row.severity, row.limit) for row in check(GraphRecord(f"g0.{kind}", kind, [X, node]), accel)]


def allow(*names):
    return AccelConfig(rules=[Rule("operation", value={"allow": list(names)})])


@pytest.mark.parametrize(
    ("target", "op", "dispatched", "pattern"),
    [
        ("_operator.getitem", "call_function", ["aten.slice.Tensor", "aten.unsqueeze.default"], "aten.unsqueeze"),
        (
            "_operator.setitem",
            "call_function",
            ["aten.lift_fresh.default", "aten.index_put_.default"],
            "aten.index_put",
        ),
        ("_operator.setitem", "call_function", ["aten.select.int", "aten.fill_.Scalar"], "aten.select_scatter"),
        ("builtins.getattr", "call_function", ["aten.permute.default"], "aten.permute.default"),
        ("expand_as", "call_method", ["aten.expand.default"], "aten.exp*"),
        ("torch.nn.functional.linear", "call_function", ["aten.t.default", "aten.addmm.default"], "aten.addmm"),
        ("torch.nn.functional.linear", "call_function", ["aten.t.default", "aten.addmm.default"], "aten.linear"),
        ("higher_order.cond", "call_function", ["aten.sin.default", "aten.cos.default"], "aten.cos"),
    ],
)
def test_what_a_call_comes_to_decides(target, op, dispatched, pattern):
    assert checked(AccelConfig(denied=[pattern]), target, dispatched, op=op) == [("warning", pattern)]
    assert checked(AccelConfig(denied=["aten.lu_unpack"]), target, dispatched, op=op) == []
    assert checked(AccelConfig(denied=[pattern]), target, op=op) in ([("undecided", pattern)],
                                                                    [("undecided", "one of 1 denied")],
                                                                    [("warning", pattern)])  # fmt: skip


def test_an_overload_that_is_known_is_not_guessed():
    assert checked(AccelConfig(denied=["aten.add.Scalar"]), "_operator.add", ["aten.add.Tensor"]) == []
    assert checked(AccelConfig(denied=["aten.mean.default"]), "mean", ["aten.mean.dim"], op="call_method") == []


def test_every_operation_that_a_call_comes_to_has_to_be_allowed():
    calls = ["aten.lift_fresh.default", "aten.index_put_.default"]
    assert checked(allow("aten.index_put", "aten.lift_fresh_copy"), "_operator.setitem", calls) == []
    assert checked(allow("aten.index_put"), "_operator.setitem", calls) == [("warning", "one of 1 allowed")]
    assert checked(allow("aten.index_put"), "_operator.setitem") == [("undecided", "one of 1 allowed")]
    assert checked(allow("aten.linear"), "torch.nn.functional.linear", ["aten.addmm.default"]) != []


def test_a_graph_inside_an_aten_graph_is_not_passed_unseen():
    for accel in (AccelConfig(denied=["aten.lu_unpack"]), allow("aten.relu")):
        assert [severity for severity, _ in checked(accel, "higher_order.cond", kind="forward")] == ["undecided"]
    assert checked(AccelConfig(denied=["aten.cos"]), "higher_order.cond", ["aten.cos.default"], kind="forward")


def test_a_rule_for_some_operations_is_undecided_for_a_call_that_may_come_to_them():
    rank = AccelConfig(rules=[Rule("rank", value=8, operations=["aten.expand"])])
    assert checked(rank, "expand_as", ["aten.expand.default"], op="call_method") == [("undecided", "aten.expand")]
    assert checked(rank, "expand_as", op="call_method") == [("undecided", "aten.expand")]
    assert checked(rank, "expand_as", ["aten.view.default"], op="call_method") == []


@pytest.mark.parametrize(
    ("pattern", "target", "hits"),
    [
        ("aten.add.Tensor", "aten.add.Tensor", 1),
        ("aten.add.Scalar", "aten.add.Tensor", 0),
        ("aten.add", "aten.add.Tensor", 1),
        ("aten.*norm*", "aten.native_layer_norm.default", 1),
        ("torch.nn.functional.relu", "aten.relu.default", 1),
        ("torch.linalg.lu_factor", "aten.linalg_lu_factor.default", 1),
        ("torch.nn.functional.layer_norm", "aten.native_layer_norm.default", 1),
        ("torch.linalg.solve", "aten._linalg_solve_ex.default", 1),
        ("torch.det", "aten._linalg_det.default", 1),
        ("torch.ops.aten.relu.default", "aten.relu.default", 1),
        ("mylib.op", "mylib.op.default", 1),
    ],
)
def test_aten_targets(pattern, target, hits):
    assert len(denied(pattern, target, kind="forward")) == hits


def test_in_place_calls_answer_to_the_in_place_name():
    assert denied("aten.relu_", "relu_", op="call_method") == ["warning"]
    assert denied("aten.relu", "relu_", op="call_method") == ["warning"]
    functional = "torch.nn.functional.relu"
    assert denied("aten.relu_", functional, kwargs={"inplace": True}) == ["warning"]
    assert denied("aten.relu_", functional, kwargs={"inplace": False}) == []
    assert denied("aten.relu_", functional, args=[{"node": "x"}, True]) == ["warning"]
    assert denied("aten.elu_", "torch.nn.functional.elu", args=[{"node": "x"}, 1.0, True]) == ["warning"]


def test_an_activation_in_place_that_torch_takes_apart_keeps_its_name():
    relu6, in_place = "torch.nn.functional.relu6", {"inplace": True}
    assert checked(AccelConfig(denied=["aten.relu6_"]), relu6, ["aten.hardtanh_.default"], kwargs=in_place) == [
        ("warning", "aten.relu6_")
    ]
    assert checked(AccelConfig(denied=["aten.relu6_"]), relu6, ["aten.hardtanh.default"]) == []
    assert checked(AccelConfig(denied=["aten.relu_"]), relu6, ["aten.hardtanh_.default"], kwargs=in_place) == []
    assert denied("aten.feature_dropout_", "torch.nn.functional.dropout2d", kwargs=in_place) == ["warning"]


def test_where_torch_asks_for_inplace_is_known():
    functions = {name: getattr(torch.nn.functional, name) for name in dir(torch.nn.functional)}
    found = {name: list(inspect.signature(function).parameters).index("inplace")
             for name, function in functions.items()
             if inspect.isfunction(function) and "inplace" in inspect.signature(function).parameters}  # fmt: skip
    assert found.items() <= IN_PLACE_POSITION.items()


def test_what_a_callable_cannot_tell_is_left_to_the_aten_graph_or_undecided():
    assert denied("aten.add.Tensor", "_operator.add") == ["undecided"]
    assert denied("aten.addmm", "torch.nn.functional.linear") == ["undecided"]
    graphs = [GraphRecord("g0.dynamo", "dynamo", [NodeRecord("n", "call_function", "_operator.add")]),
              GraphRecord("g0.forward", "forward", [NodeRecord("n", "call_function", "aten.add.Tensor")])]  # fmt: skip
    rows = list(check(graphs, AccelConfig(denied=["aten.add.Tensor"])))
    assert [(row.graph, row.severity) for row in rows] == [("g0.forward", "warning")]


@pytest.mark.parametrize(
    ("pattern", "target", "expected"),
    [
        ("aten.*mm*", "torch.nn.functional.linear", ["undecided"]),
        ("aten.addmm.*", "torch.nn.functional.linear", ["undecided"]),
        ("aten.add.T*", "_operator.add", ["undecided"]),
        ("aten.add.*", "_operator.add", ["warning"]),
        ("aten.*lu*", "torch.nn.functional.linear", []),
        ("aten.add.T*", "_operator.mul", []),
        ("torch.nn.*", "_operator.add", []),
    ],
)
def test_a_pattern_is_as_undecided_as_a_name(pattern, target, expected):
    assert denied(pattern, target) == expected


@pytest.mark.parametrize(
    ("pattern", "target", "expected"),
    [
        ("aten.convolution", "aten.conv2d.default", ["warning"]),
        ("aten.native_layer_norm", "aten.layer_norm.default", ["warning"]),
        ("aten._softmax", "aten.softmax.int", ["warning"]),
        ("aten.addmm", "aten.linear.default", ["undecided"]),
        ("aten.*mm*", "aten.matmul.default", ["undecided"]),
        ("aten.linalg_inv_ex", "higher_order.cond", ["undecided"]),
        ("aten.addmm", "mylib.linear.default", []),
    ],
)
def test_a_composite_of_an_exported_graph_is_what_it_becomes(pattern, target, expected):
    assert denied(pattern, target, kind="exported") == expected


def test_a_module_that_was_not_traced_is_undecided():
    assert denied("aten.relu", "encoder.layer", op="call_module") == ["undecided"]


@pytest.mark.parametrize(
    "fields",
    [{"denied": ["aten.relu"]}, {"allowed": ["higher_order.cond"]}, {"alignment": 8}, {"max_rank": 4},
     {"dtypes": ["float32"]}, {"layout": "contiguous"}, {"max_tensor_bytes": 1 << 30}, {"max_peak_bytes": 1 << 30},
     {"dynamic_shapes": "static"}],
)  # fmt: skip
def test_the_body_of_a_higher_order_operator_is_undecided(fields):
    nodes = [NodeRecord("x", "placeholder", "x", role="input"), NodeRecord("body", "get_attr", "body"),
             NodeRecord("y", "call_function", "higher_order.cond", inputs=["x", "body"])]  # fmt: skip
    forward = GraphRecord("g0.forward", "forward", nodes)
    rows = list(check(forward, AccelConfig(**fields)))
    assert [(row.node, row.severity) for row in rows] == [("y", "undecided")]
    dynamo = GraphRecord("g0.dynamo", "dynamo", [*nodes[:2], replace(nodes[2], body=[])])
    assert {row.graph for row in check([dynamo, forward], AccelConfig(**fields))} == {"g0.forward"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (["torch.nn.functional.relu6", {"inplace": True}], ("torch.nn.functional.relu6", "warning", "net.py:9")),
        (["torch.nn.functional.linear", {}], ("torch.nn.functional.linear", "warning", "net.py:9")),
        (["torch.nn.functional.relu6", {}], None),
        (None, ("higher_order.tag_activation_checkpoint", "undecided", "net.py:7")),
    ],
)
def test_a_name_that_aotautograd_drops_is_judged_in_the_body(body, expected):
    """AOTAutograd inlines a checkpoint's body, and what it calls in place is functional then."""
    inner = body and [NodeRecord("a", "call_function", body[0], kwargs=body[1], source=SourceLine("net.py", 9),
                                 outputs=X.outputs)]  # fmt: skip
    nodes = [X, NodeRecord("body", "get_attr", "body"),
             NodeRecord("y", "call_function", "higher_order.tag_activation_checkpoint", inputs=["x", "body"],
                        source=SourceLine("net.py", 7), body=inner)]  # fmt: skip
    dynamo = GraphRecord.from_json(GraphRecord("g0.dynamo", "dynamo", nodes).to_json())
    forward = GraphRecord("g0.forward", "forward", [X, NodeRecord("b", "call_function", "aten.hardtanh.default")])
    rows = check([dynamo, forward], AccelConfig(denied=["aten.relu6_", "aten.linear"]))
    assert [(row.target, row.severity, row.source) for row in rows] == ([expected] if expected else [])
    assert all((row.graph, row.node) == ("g0.dynamo", "y") for row in rows)
    assert len(by_rule(rows, [dynamo, forward])) == len(rows)


def test_the_body_is_a_node_of_this_torchs_graphs():
    from inductor_debug.stages.torch_internals.fx_records import RecordContext, graph_record

    records = []

    def backend(gm, inputs):
        records.append(graph_record(gm.graph, id="g0.dynamo", context=RecordContext.of(gm)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x: torch.cond(x.sum() > 0, lambda t: t.relu(), lambda t: t.sin(), (x,)), backend=backend)(
        torch.randn(4)
    )
    rows = {row.target: row.severity for row in check(records, AccelConfig(denied=["aten.relu"]))}
    assert rows["higher_order.cond"] == "undecided"
    (aligned,) = [row for row in check(records, AccelConfig(alignment=4)) if row.target == "higher_order.cond"]
    assert aligned.severity == "undecided"


def test_an_operator_that_is_called_by_auto_functionalized_is_found():
    assert denied("mylib.op", "higher_order.auto_functionalized_v2", kind="forward", args=["mylib.op.default"]) == [
        "warning"
    ]
    assert (
        denied("rules_test.op", "higher_order.auto_functionalized", kind="forward", args=["mylib.other.default"]) == []
    )


def test_an_operator_that_the_capture_calls_needs_no_torch_to_be_known():
    node = NodeRecord("n", "call_function", "higher_order.auto_functionalized_v2", args=["mylib.op.default"])
    graph = GraphRecord("g0.forward", "forward", [node])
    assert unfamiliar(Profile(rules=(Rule("operation", value=["mylib.op", "mylib.other"]),)), [graph]) == [
        "mylib.other"
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("rules_test.op", "warning"), ("rules_test.*", "warning"), ("op", "warning"),
     ("rules_test.op.default", "undecided"), ("rules_test.op.d*", "undecided"),
     ("torch.ops.rules_test.op", "warning"), ("rules_test.other", "undecided"), ("aten.op", "undecided")],
)  # fmt: skip
def test_an_operator_of_a_library_is_found_where_dynamo_calls_it(pattern, expected):
    from inductor_debug.stages.torch_internals.fx_records import RecordContext, graph_record

    records = []

    def backend(gm, inputs):
        records.append(graph_record(gm.graph, id="g0.dynamo", context=RecordContext.of(gm)))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(lambda x: torch.ops.rules_test.op(x), backend=backend)(torch.randn(3))
    assert [node.target for node in records[0].nodes if node.op == "call_function"] == ["rules_test.op"]
    assert [row.severity for row in check(records, validate_profile(AccelConfig(denied=[pattern])))] == [expected]


def test_a_dynamo_graph_of_this_torch_is_found():
    from inductor_debug.stages.torch_internals.fx_records import target_name

    names = []

    def backend(gm, inputs):
        names.extend((node.op, target_name(node.target), node.kwargs) for node in gm.graph.nodes)
        return gm.forward

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.act = torch.nn.Conv2d(3, 4, 1), torch.nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.act(self.conv(x))
            return torch.nn.functional.gelu(y), torch.linalg.lu_factor(y + torch.eye(4))[0], y.kthvalue(1)[0]

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Net(), backend=backend)(torch.randn(1, 3, 4, 4))
    nodes = [NodeRecord(f"n{index}", op, name, kwargs=dict(kwargs) if name.endswith("relu") else {})
             for index, (op, name, kwargs) in enumerate(names)]  # fmt: skip
    record = GraphRecord("g0.dynamo", "dynamo", nodes)
    for pattern in ("aten.convolution", "aten.relu", "aten.relu_", "aten.gelu", "aten.linalg_lu_factor",
                    "aten.kthvalue"):  # fmt: skip
        assert len(check(record, AccelConfig(denied=[pattern]))) == 1, (pattern, names)
