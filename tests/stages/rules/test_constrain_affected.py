"""Which operations a finding in Dynamo's graph comes to, in made-up graphs."""

from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine
from inductor_debug.stages.rules.affected import AffectedOperations
from inductor_debug.stages.rules.violation import Violation

LINE = SourceLine("net.py", 7, "y = relu(fused(x))", "forward")


def call(name: str, target: str, dispatched: list[str] | None = None, flops: int | None = None) -> NodeRecord:
    return NodeRecord(
        name, "call_function", target, inputs=["x"], module="block", source=LINE, flops=flops, dispatched=dispatched
    )


def relu_became(*others: NodeRecord, aten: list[NodeRecord]) -> set[tuple[str, str]] | None:
    """The operations of a row about ``relu``, which Dynamo has at one line with others."""
    x = NodeRecord("x", "placeholder", "x", role="input")
    relu = call("relu", "torch.nn.functional.relu", ["aten.relu.default"])
    graphs = [
        GraphRecord("g0.dynamo", "dynamo", [x, relu, *others]),
        GraphRecord("g0.forward", "forward", [x, call("relu", "aten.relu.default"), *aten]),
    ]
    row = Violation(
        "g0.dynamo", "relu", relu.target, "", "block", str(LINE), "operation", "fallback", "error", "relu", "", 0, None,
        "", "",
    )  # fmt: skip
    return AffectedOperations(graphs).of([row])[0]


def test_a_call_became_the_operation_that_bears_its_name() -> None:
    linear = call("linear", "torch.nn.functional.linear", ["aten.addmm.default"])
    assert relu_became(linear, aten=[call("addmm", "aten.addmm.default", flops=10)]) == {("g0.forward", "relu")}


def test_it_is_not_known_where_work_at_its_line_is_nobody_s() -> None:
    fused = call("fused", "vendor.fused", ["vendor.fused.default"])
    assert relu_became(fused, aten=[call("addmm", "aten.addmm.default", flops=10)]) is None
    assert relu_became(fused, aten=[call("view", "aten.view.default")]) == {("g0.forward", "relu")}
