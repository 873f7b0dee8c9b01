"""What the findings come to, by hand."""

import pytest
from constrain_graphs import call, graph, placeholder, tensor

from stages.constrain import check
from stages.constrain.config import AccelConfig, Rule, Waiver
from stages.constrain.summary import by_rule, top_lines

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
    table = by_rule(check(graphs, AccelConfig(rules=rules)), graphs).set_index(["rule", "effect"])
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
    (row,) = by_rule(check(FORWARD, config), [FORWARD]).to_dict("records")
    assert (row["findings"], row["waived"], row["nodes"]) == (2, 2, 0)


def test_nothing_found_is_an_empty_table() -> None:
    assert len(by_rule(check(FORWARD, AccelConfig()), [FORWARD])) == 0


def test_the_lines_that_cost_most_come_first() -> None:
    rows = [{"source": f"a.py:{line}", "severity": "warning", "rule": "alignment", "effect": "pad",
             "cost_bytes": str(line), "suggestion": "pad"} for line in range(30)]  # fmt: skip
    lines = top_lines(rows, {"a.py:29": "y = f(x)"})
    assert [line["source"] for line in lines] == [f"a.py:{line}" for line in range(29, 19, -1)]
    assert (lines[0]["code"], lines[0]["rules"]) == ("y = f(x)", "alignment (pad)")
