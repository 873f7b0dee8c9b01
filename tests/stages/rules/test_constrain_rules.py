"""Each rule on hand-made graphs, with violations derived by hand."""

import datetime
from collections import Counter
from dataclasses import replace

import pytest
from constrain_graphs import call, found, graph, placeholder, places, rules, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_debug.stages.accelerators.config import AccelConfig, Rule, Waiver
from inductor_debug.stages.accelerators.profile import validate_profile
from inductor_debug.stages.artifacts import records
from inductor_debug.stages.graphs.operation_names import matches
from inductor_debug.stages.graphs.symbolic_sizes import case_value, guaranteed_factor
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.violations import COLUMNS

MATMUL = graph(
    placeholder("x", 3, 100),
    placeholder("w", 100, 24, role="parameter"),
    call("mm", "aten.mm.default", ["x", "w"], tensor(3, 24), flops=2 * 3 * 100 * 24),
    call("relu", "aten.relu.default", ["mm"], tensor(3, 24)),
)


@settings(deadline=None)
@given(limit=st.integers(1, 128), size=st.integers(2, 2000))
def test_alignment_is_the_multiple_on_both_sides_of_the_limit(limit, size):
    rows = found(graph(placeholder("x", 5, size)), alignment=limit)
    if size % limit == 0:
        assert rows == []
    else:
        padded = -(-size // limit) * limit
        assert [(row.measured, row.limit, row.cost_bytes) for row in rows] == [
            (str(size), str(limit), 5 * (padded - size) * 4)
        ]


@settings(deadline=None)
@given(limit=st.integers(2, 64), blocks=st.integers(1, 40))
def test_one_element_either_side_of_a_multiple_is_a_violation(limit, blocks):
    exact = limit * blocks
    assert found(graph(placeholder("x", exact)), alignment=limit) == []
    assert len(found(graph(placeholder("x", exact + 1)), alignment=limit)) == 1
    assert len(found(graph(placeholder("x", exact - 1)), alignment=limit)) == (
        exact - 1 > 1 and (exact - 1) % limit > 0
    )


def test_each_tensor_is_reported_once_at_the_node_that_makes_it():
    rows = found(MATMUL, alignment=16)
    assert places(rows) == [("x", "input", "100"), ("w", "parameter", "24"), ("mm", "output", "24"),
                            ("relu", "output", "24")]  # fmt: skip
    mm = rows[2]
    assert (mm.source, mm.rule, mm.effect, mm.severity) == ("net.py:7", "alignment", "pad", "warning")
    assert mm.cost_bytes == 3 * (32 - 24) * 4 and mm.cost_share == pytest.approx(8 / 24)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ("last", [("x", "100")]),
        ("last2", [("x", "3"), ("x", "100")]),
        ("all", [("x", "1"), ("x", "3"), ("x", "100")]),
    ],
)
def test_dims_choose_dimensions_and_size_one_counts_only_under_all(dims, expected):
    rows = found(graph(placeholder("x", 1, 3, 100)), alignment=8, alignment_dims=dims)
    assert [(row.node, row.measured) for row in rows] == expected
    assert len(found(graph(placeholder("x", 4, 1)), alignment=4, alignment_dims=dims)) == (dims == "all")


def test_contraction_looks_at_operands_at_each_reader():
    rows = found(MATMUL, alignment=16, alignment_dims="contraction")
    assert places(rows) == [("mm", "args[0]", "100"), ("mm", "args[1]", "100")]
    conv = graph(placeholder("x", 1, 3, 8, 8), placeholder("w", 16, 3, 3, 3, role="parameter"),
                 call("c", "torch.conv2d", ["x", "w"], tensor(1, 16, 6, 6)), kind="dynamo")  # fmt: skip
    rows = found(conv, alignment=8, alignment_dims="contraction")
    assert places(rows) == [("c", "args[0]", "3"), ("c", "args[1]", "3")]


def test_a_contraction_that_cannot_be_read_is_undecided():
    einsum = graph(placeholder("x", 3, 5), call("e", "torch.einsum", ["ij,ij->", "x"], tensor()), kind="dynamo")
    assert [row.severity for row in found(einsum, alignment=8, alignment_dims="contraction")] == ["undecided"]


def test_integer_tensors_count_only_where_index_is_named():
    ids = graph(placeholder("ids", 2, 7, dtype="int64"), placeholder("mask", 2, 7, dtype="bool"))
    assert found(ids, alignment=8) == []
    assert len(found(ids, alignment=8, alignment_roles=["index"])) == 2
    assert found(MATMUL, alignment=16, alignment_roles=["parameter"])[0].node == "w"


def test_alignment_in_bytes():
    rule = Rule(rule="alignment", value=16, unit="bytes")
    assert found(graph(placeholder("x", 8, dtype="float16")), rules=[rule]) == []
    rows = found(graph(placeholder("x", 12, dtype="float16")), rules=[rule])
    assert [(row.measured, row.cost_bytes) for row in rows] == [("24", 8)]


@pytest.mark.parametrize(
    ("size", "hint", "severity"),
    [("64*s0", 128, []), ("s0", 10, ["warning"]), ("s0", 16, ["undecided"]), ("u0", None, ["undecided"])],
)
def test_symbolic_sizes_are_decided_or_said_to_be_undecided(size, hint, severity):
    hints = None if hint is None else [3, hint]
    rows = found(graph(placeholder("x", 3, size, hints=hints)), alignment=16)
    assert [row.severity for row in rows] == severity


def test_undecided_fails_a_strict_profile():
    unknown = graph(placeholder("x", 3, "u0"))
    assert check(unknown, AccelConfig(alignment=16, strict=True)).failed
    assert not check(unknown, AccelConfig(alignment=16)).failed


def test_size_expressions():
    assert [guaranteed_factor(size) for size in (12, "s0", "64*s0", "8*s0 + 12", "(4*s0)**2", "s0//2")] == [
        12, 1, 64, 4, 16, 1]  # fmt: skip
    symbols = {"s0": {"hint": 6}}
    assert [case_value(size, None, symbols) for size in ("s0*4", "s0 - 1", "s0//4", "u0", "f(s0)")] == [
        24, 5, 1, None, None]  # fmt: skip


def test_dtype_names_what_to_use_instead():
    rows = found(graph(placeholder("x", 2, 3, dtype="float64")), dtypes=["float16", "float32"])
    assert [(row.measured, row.limit, row.cost_bytes, row.suggestion) for row in rows] == [
        ("float64", "float16 float32", 48, "use float32")
    ]
    assert found(MATMUL, dtypes=["torch.float32"]) == []


def test_layout_looks_at_strides_and_offset():
    turned = graph(placeholder("x", 4, 6, stride=[1, 4]), placeholder("y", 4, 1, stride=[1, 99]),
                   placeholder("z", 4, storage_offset=2))  # fmt: skip
    rows = found(turned, layout="contiguous")
    assert places(rows) == [("x", "input", "[1, 4]"), ("z", "input", "offset 2")]
    assert rows[0].effect == "copy" and rows[0].cost_bytes == 96
    image = graph(placeholder("x", 1, 3, 4, 4), placeholder("y", 2, 3, 4, 4, stride=[48, 1, 12, 3]),
                  placeholder("z", 5, 5))  # fmt: skip
    assert [row.node for row in found(image, layout="channels_last")] == ["x"]


def test_memory_counts_bytes_and_leaves_views_out():
    big = graph(placeholder("x", 256), call("v", "aten.expand.default", ["x"], tensor(4, 256), aliases=True),
                call("u", "aten.cat.default", ["x"], tensor("u0")))  # fmt: skip
    assert found(big, max_tensor_bytes=1024)[0].severity == "undecided"
    assert places(found(big, max_tensor_bytes=1023))[:1] == [("x", "input", "1024")]


def test_multi_output_nodes_are_checked_output_by_output_and_getitem_does_not_repeat_them():
    norm = graph(
        placeholder("x", 4, 16),
        call("n", "aten.native_layer_norm.default", ["x"], tensor(4, 16), tensor(4, 3), tensor(4, 5)),
        call("g", "_operator.getitem", ["n", 1], tensor(4, 3)),
    )
    assert places(found(norm, alignment=8)) == [("n", "output[1]", "3"), ("n", "output[2]", "5")]


def test_an_output_left_out_does_not_make_getitem_a_tensor_of_its_own():
    backward = graph(
        placeholder("x", 4, 16),
        call("c", "aten.convolution_backward.default", ["x"], tensor(4, 3)),  # its first output is None
        call("g", "_operator.getitem", ["c", 1], tensor(4, 3)),
        kind="backward",
    )
    assert places(found(backward, alignment=8)) == [("c", "output", "3")]
    indexed = graph(placeholder("x", 1, 3), call("g", "_operator.getitem", ["x", 0], tensor(3)), kind="dynamo")
    assert [row.node for row in found(indexed, alignment=8)] == ["x", "g"]


def test_an_alias_with_the_same_metadata_is_the_same_tensor():
    same = call("d", "aten.detach.default", ["x"], tensor(2, 3), aliases=True)
    other = call("v", "aten.view.default", ["x"], tensor(3, 2), aliases=True)
    copied = call("k", "aten.clone.default", ["x"], tensor(2, 3))
    rows = found(graph(placeholder("x", 2, 3), same, other, copied), alignment=8)
    assert [row.node for row in rows] == ["x", "v", "k"]
    part = placeholder("x", 2, 3, role="saved")  # of a larger storage, which its views are not said to have
    part = replace(part, outputs=[replace(part.outputs[0], storage_bytes=4096)])
    assert [row.node for row in found(graph(part, same), alignment=8)] == ["x"]


def test_a_backward_graph_does_not_repeat_what_its_forward_showed():
    backward = graph(placeholder("w", 100, 24, role="saved"), placeholder("tangents_1", 3, 24, role="tangent"),
                     kind="backward")  # fmt: skip
    assert places(found(backward, alignment=16)) == [("w", "saved", "24"), ("tangents_1", "tangent", "24")]
    rows = [row for row in found([MATMUL, backward], alignment=16) if row.graph == "g0.backward"]
    assert places(rows) == [("tangents_1", "tangent", "24")]


def test_dynamo_and_joint_graphs_do_not_count_tensors_twice():
    dynamo, joint = graph(placeholder("x", 3, 100), kind="dynamo"), graph(placeholder("x", 3, 100), kind="joint")
    assert {row.graph for row in found([dynamo, joint, MATMUL], alignment=16)} == {"g0.forward"}
    assert {row.graph for row in found([dynamo], alignment=16)} == {"g0.dynamo"}


def test_no_rule_given_is_no_rule():
    assert found(MATMUL) == []
    assert found(MATMUL, denied=[], rules=[]) == []


def test_operation_cost_is_the_share_of_flops():
    rows = found(MATMUL, denied=["aten.mm"])
    assert [(row.node, row.limit, row.cost_share, row.cost_bytes) for row in rows] == [("mm", "aten.mm", 1.0, 288)]


def test_strict_gives_every_violation_not_the_first():
    violations = check(MATMUL, AccelConfig(alignment=16, denied=["aten.relu"], strict=True))
    assert violations.by_severity == {"error": 5} and violations.failed
    assert violations.summary() == records.Violations(
        total=5, by_rule={"alignment": 4, "operation": 1}, by_effect={"pad": 4, "reject": 1}, by_severity={"error": 5},
        strict=True)  # fmt: skip
    assert list(violations.table.columns) == COLUMNS and len(violations.table) == 5
    assert list(check([], AccelConfig()).table.columns) == COLUMNS


@pytest.mark.parametrize(("expires", "failed"), [(None, False), ("2027-01-02", False), ("2027-01-01", True)])
def test_waivers_accept_until_they_expire(expires, failed):
    waiver = Waiver(rule="operation", target="aten.mm", reason="known", expires=expires)
    config = AccelConfig(denied=["aten.mm"], strict=True, waivers=[waiver])
    violations = check(MATMUL, config, today=datetime.date(2027, 1, 1))
    assert violations.failed is failed
    assert violations.by_severity == ({"error": 1} if failed else {"waived": 1})
    assert "known" in violations.rows[0].message


def test_a_waiver_for_another_line_accepts_nothing():
    waiver = Waiver(rule="operation", source="other.py:*", reason="known")
    assert check(MATMUL, AccelConfig(denied=["aten.mm"], strict=True, waivers=[waiver])).failed


def test_rules_in_full_form_are_edited_by_their_scalar():
    rules = [Rule(rule="alignment", value=8, dims="last2", effect="copy", source="a manual", version="1")]
    profile = validate_profile(AccelConfig(rules=rules, alignment=32))
    assert [(rule.value, rule.dims, rule.effect) for rule in profile.rules] == [(32, "last2", "copy")]
    assert validate_profile(AccelConfig(rules=rules, alignment_dims="all")).rules[0].dims == "all"


def test_operations_that_repeat_are_matched_once(monkeypatch):
    """A model repeats few operations often: matching each node anew took most of a check."""
    from inductor_debug.stages.rules import checked_tensors

    asked = Counter()

    def counting(pattern, operation):
        asked[pattern] += 1
        return matches(pattern, operation)

    monkeypatch.setattr(checked_tensors, "matches", counting)
    checked_tensors._selects.cache_clear()
    nodes = [call(f"n{index}", f"aten.{('mul', 'sub')[index % 2]}.Tensor", ["x"], tensor(4, 4)) for index in range(200)]
    rule = rules(rule="dtype", value=["int8"], operations=["aten.sinc", "aten.mul"])
    assert len(found(graph(placeholder("x", 4, 4), *nodes), **rule)) == 200  # 100 products, x and the result of each
    assert asked == {"aten.sinc": 2, "aten.mul": 2}


def test_a_changed_row_is_the_same_but_for_the_change():
    (row,) = found(graph(placeholder("x", 4, 4, dtype="float64"), call("n", "aten.sin.default", ["x"])),
                   dtypes=["float32"])  # fmt: skip
    changed = row.but(severity="waived")
    assert (changed, row.severity) == (replace(row, severity="waived"), "warning")
    assert type(changed) is type(row) and hash(changed) == hash(replace(row, severity="waived"))
