"""What a check does grows with the graph and no faster, counted in calls of functions: no clock is read."""

import itertools
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from growing_graphs import SHAPES, call, given, graph

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.profile import validate_profile
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.constrain.tables import by_rule
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.engine import check

RULES = validate_profile(
    AccelConfig(alignment=16, alignment_dims="all", max_rank=1, layout="channels_last", max_tensor_bytes=256,
                max_peak_bytes=256, dtypes=["float16"], denied=["aten.relu", "aten.mm"])
)  # fmt: skip


def calls_of(work: Callable[[], Any]) -> int:
    """Calls of functions, those written in C and comparisons of records among them."""
    count = 0

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def read_back(graphs: list[GraphRecord]) -> list[GraphRecord]:
    return [files.GRAPH.shaped(graph.to_json(), graph.id) for graph in graphs]


@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_nodes_take_four_times_the_work(shape: str) -> None:
    counts = []
    for size in (100, 400, 1600):
        graphs = [SHAPES[shape](kind, size) for kind in ("dynamo", "forward")]

        def work(graphs: list[GraphRecord] = graphs) -> None:
            violations = check(read_back(graphs), RULES)
            by_rule(violations, graphs)
            violations.summary()

        counts.append(calls_of(work))
    exponents = [math.log(after / before, 4) for before, after in itertools.pairwise(counts)]
    assert max(exponents) <= 1.1


def test_a_chain_of_views_may_be_deeper_than_python_recurses() -> None:
    """The input is what a product at its end reads, and what all of its views look at."""
    depth = 3 * sys.getrecursionlimit()
    names = ["x", *(f"view{index}" for index in range(depth))]
    views = [call("forward", name, "view", [read], 1) for read, name in itertools.pairwise(names)]
    product = call("forward", "mm", "mm", [names[-1], names[-1]], 2)
    deep = graph("forward", [given("x", "input"), *views, product], ["mm"])
    rules = [Rule("alignment", value=16), Rule("alignment", "reject", "contraction", value=32)]
    found = check(deep, AccelConfig(rules=rules))
    assert {row.piece.partition("[")[0] for row in found if row.limit == "32"} == {"g0.forward/x"}
    (padded,) = [row for row in by_rule(found, [deep]) if row.effect == "pad"]
    assert padded.nodes == depth + 1
