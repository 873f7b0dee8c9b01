"""Custom rules, and what a rule can be given: values, effects, units."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from constrain_graphs import LINEAR, found, graph, placeholder, rules

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.profile import validate_profile
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.graph_rules import check_custom


def odd_nodes(graph: GraphRecord, *, every: int, fault: str = "") -> Iterator[dict[str, Any]]:
    """A custom rule: every so many-th call is not liked."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    for node in calls[::every]:
        yield {"node": fault or node.name, "message": "is not liked", "measured": every, "cost_bytes": 7}


def test_a_custom_rule_is_called_with_its_arguments() -> None:
    rule = rules(rule="custom", effect="fallback", value={"_target_": f"{__name__}.odd_nodes", "every": 2})
    rows = found(LINEAR, **rule)
    assert [(row.node, row.rule, row.effect, row.measured, row.cost_bytes) for row in rows] == [
        ("mm", "custom", "fallback", "2", 7), ("add", "custom", "fallback", "2", 7),
    ]  # fmt: skip
    assert rows[0].message == "mm: is not liked" and rows[0].source == "net.py:7"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"_target_": "no.such.module"}, "can't be imported"),
        ({"_target_": f"{__name__}.LINEAR"}, "is no callable"),
        ({"_target_": f"{__name__}.odd_nodes", "every": 1, "fault": "nowhere"}, "has no node 'nowhere'"),
        ({"every": 1}, "_target_"),
        ({"_target_": f"{__name__}.breaks"}, "breaks: raised RuntimeError: boom, on g0.forward"),
    ],
)
def test_a_custom_rule_that_can_not_be_used(value: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        found(LINEAR, **rules(rule="custom", value=value))


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("cost_bytes", "many", "a whole number of bytes"),
        ("cost_bytes", 1.5, "a whole number of bytes"),
        ("cost_bytes", -1, "a whole number of bytes"),
        ("cost_bytes", True, "a whole number of bytes"),
        ("cost_share", float("nan"), "a number, 0 or more"),
        ("cost_share", [1], "a number, 0 or more"),
        ("undecided", "no", "True or False"),
        ("message", None, "text"),
        ("operand", 1, "text"),
        ("node", ["mm"], "text"),
    ],
)
def test_a_custom_rules_finding_of_a_wrong_type(name: str, value: Any, told: str) -> None:
    rule = rules(rule="custom", value={"_target_": f"{__name__}.one_finding", "more": {name: value}})
    with pytest.raises(ConfigurationError, match=rf"yielded .*, whose {name} is .*; valid: {told}"):
        found(LINEAR, **rule)


def test_a_custom_rules_finding_may_hold_any_measure_and_numbers_of_numpy() -> None:
    more = {"measured": [1, 2], "limit": None, "cost_bytes": np.int64(5), "cost_share": np.float32(0.5)}
    (row,) = found(LINEAR, **rules(rule="custom", value={"_target_": f"{__name__}.one_finding", "more": more}))
    assert (row.measured, row.limit, row.cost_bytes, row.cost_share) == ("[1, 2]", "None", 5, 0.5)
    assert type(row.cost_bytes) is int and type(row.cost_share) is float


def one_finding(graph: GraphRecord, *, more: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A custom rule that finds something at the product."""
    yield {"node": "mm", "message": "is not liked"} | more


def breaks(graph: GraphRecord) -> Iterator[dict[str, Any]]:
    """A custom rule that fails."""
    raise RuntimeError("boom")


def test_a_custom_rule_for_some_operations() -> None:
    value = {"_target_": f"{__name__}.odd_nodes", "every": 1}
    rows = found(LINEAR, **rules(rule="custom", operations=["aten.mm", "aten.add"], value=value))
    assert [row.node for row in rows] == ["mm", "add"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"_target_": f"{__name__}.odd_nodes"}, "missing a required .*argument: 'every'"),
        ({"_target_": f"{__name__}.odd_nodes", "every": 1, "evry": 2}, "unexpected keyword argument 'evry'"),
        ({"_target_": f"{__name__}.nothing_here"}, "can't be imported"),
    ],
)
def test_a_custom_rule_is_looked_at_before_anything_runs(value: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        check_custom(Rule(rule="custom", value=value))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            rules(rule="size", value={"min": 10, "max": 5}),
            r"accel.rules\[0\].value: got {.*}; valid: min at most max.\nTry: value: {min: 1, max: 65535}",
        ),
        (rules(rule="dtype", value={"float32": "blah"}), "got 'blah'"),
        ({"max_rank": 0}, "accel.max_rank: got 0; valid: a whole number above 0.\nTry: accel.max_rank=4"),
        ({"tile": []}, "accel.tile"),
        ({"tile": [32, 0]}, "accel.tile"),
        ({"dynamic_shapes": "maybe"}, "static, bounded"),
        (rules(rule="size", value={"least": 1}), "got {'least': 1}; valid: a mapping of min or max, or both"),
        (rules(rule="size", value={}), "got {}; valid: a mapping of min or max"),
        (rules(rule="size", value={"max": 0}), r"accel.rules\[0\].value.max: got 0; .*\nTry: max: 16"),
        (rules(rule="layout", value=16), "contiguous, channels_last, {stride"),
        (rules(rule="rank", value=0), r"accel.rules\[0\].value: got 0; .*\nTry: value: 4$"),
        (rules(rule="rank", value=4, roles=[]), r"accel.rules\[0\].roles: got \[\]: the rule would look at nothing"),
        (
            {"alignment": 8, "alignment_roles": []},
            r"accel.alignment_roles: got \[\]: .*\nTry: accel.alignment_roles=null",
        ),
        (rules(rule="rank", value=4, roles=["param"]), r"\nTry: roles: \[parameter\]$"),
        (rules(rule="dtype", value=[]), r"Try: value: \[float32,int64\], or for no rule leave the rule out"),
        (rules(rule="dtype", value=["float23"]), r"Try: value: \[float32\]$"),
        ({"dtypes": ["float23"]}, r"Try: accel.dtypes=\[float32\]$"),
        (rules(rule="dtype", value={"float32": "float33"}), r"Try: value: \{float32: float32\}$"),
        (rules(rule="dtype", value={"float63": "float16"}), r"Try: value: \{float64: float16\}$"),
        (
            rules(rule="memory_peak", value="16G"),
            "got '16G'; valid: a positive number of bytes with B, KB.*\nTry: value: 16GiB",
        ),
        ({"max_tensor_bytes": "much"}, "accel.max_tensor_bytes: got 'much'; .*\nTry: accel.max_tensor_bytes=16GiB"),
        ({"max_tensor_bytes": "0MiB"}, "accel.max_tensor_bytes: got '0MiB'"),
        ({"max_tensor_bytes": "-1"}, "accel.max_tensor_bytes: got '-1'"),
        (rules(rule="operation", value={"alow": []}), "allow"),
        (rules(rule="layout", value={"stride": 0}), "above 0"),
        (rules(rule="rank", value=4, operations=[]), "would look at nothing"),
        (rules(rule="dtype", value=["float16"], roles=["weights"]), "storage"),
    ],
)
def test_values_that_no_rule_takes(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        found(LINEAR, **fields)


VALUES: dict[str, Any] = {
    "alignment": 8, "rank": 4, "size": 9, "tile": [8], "dtype": ["float32"], "layout": "contiguous",
    "memory_tensor": 1, "memory_peak": 1, "operation": ["aten.mm"], "dynamic_shape": "static",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "effect"),
    [("alignment", "cast"), ("rank", "pad"), ("tile", "cast"), ("dtype", "pad"), ("dtype", "copy"), ("layout", "cast"),
     ("layout", "pad"), ("memory_tensor", "cast"), ("memory_peak", "pad"), ("operation", "pad"), ("operation", "cast"),
     ("dynamic_shape", "copy")],
)  # fmt: skip
def test_an_effect_that_a_rule_can_not_have(rule: str, effect: str) -> None:
    told = rf"accel.rules\[0\].effect: got '{effect}' \(in a rule {rule}\); valid: .*\nTry: effect: "
    with pytest.raises(ConfigurationError, match=told):
        validate_profile(AccelConfig(**rules(rule=rule, effect=effect, value=VALUES[rule])))
    assert validate_profile(AccelConfig(**rules(rule=rule, effect="fallback", value=VALUES[rule])))


@pytest.mark.parametrize(
    ("given", "expected"), [(5, 5), ("5", 5), ("2KiB", 2048), ("16 gib", 16 * 1024**3), ("1.5GB", 1_500_000_000)]
)
def test_memory_takes_units(given: Any, expected: int) -> None:
    for fields in ({"max_tensor_bytes": given}, {"max_peak_bytes": given}, rules(rule="memory_tensor", value=given)):
        assert validate_profile(AccelConfig(**fields)).rules[0].value == expected


def test_a_scalar_edits_the_rule_it_names() -> None:
    x = graph(placeholder("x", 2, 3, 4))
    rule = rules(rule="rank", effect="copy", value=1, source="the data sheet")
    assert [row.effect for row in found(x, **rule, max_rank=2)] == ["copy"]
    assert found(x, **rule, max_rank=3) == []
