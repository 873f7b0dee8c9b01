"""Guards of a stored run, as ``analyze`` shows them."""

from inductor_debug.stages.artifacts.records import CapturedGuard
from inductor_debug.stages.guards.questions import _by_type


def test_guards_of_a_frame_without_a_graph_come_last() -> None:
    held = [
        (graph, CapturedGuard(graph=graph, type=kind, code=["x > 0"], source=None))
        for graph, kind in [
            (None, "ID_MATCH"),
            ("g1.dynamo", "ID_MATCH"),
            ("g0.dynamo", "A"),
            ("g0.dynamo", "TENSOR_MATCH"),
        ]
    ]
    rows = _by_type(held, "capture/guards.json").rows
    assert [(row["graph"], row["type"]) for row in rows] == [
        ("g0.dynamo", "TENSOR_MATCH"), ("g0.dynamo", "A"), ("g1.dynamo", "ID_MATCH"), (None, "ID_MATCH")
    ]  # fmt: skip
