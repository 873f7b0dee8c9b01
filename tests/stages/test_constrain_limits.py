"""Rank, sizes, tiles, dtypes by role, strides, memory, symbolic sizes, allow lists and custom rules: each by hand."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from constrain_graphs import call, found, graph, placeholder, places, rules, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import ConfigurationError
from stages.constrain import validate_profile
from stages.constrain.config import AccelConfig, Rule
from stages.constrain.graph_rules import check_custom
from stages.graphs import GraphRecord

SHAPES = st.lists(st.integers(1, 70), min_size=0, max_size=6)
LINEAR = graph(
    placeholder("x", 4, 100),
    placeholder("ids", 4, dtype="int64"),
    placeholder("w", 100, 24, role="parameter"),
    call("mm", "aten.mm.default", ["x", "w"], tensor(4, 24), flops=2 * 4 * 100 * 24),
    call("gather", "aten.index.Tensor", ["mm", "ids"], tensor(4, 24), flops=0),
    call("add", "aten.add.Tensor", ["gather", "mm"], tensor(4, 24), flops=2 * 4 * 24),
)


@settings(deadline=None)
@given(shape=SHAPES, limit=st.integers(1, 6))
def test_rank(shape: list[int], limit: int) -> None:
    rows = found(graph(placeholder("x", *shape)), max_rank=limit)
    assert [row.measured for row in rows] == ([str(len(shape))] if len(shape) > limit else [])


@settings(deadline=None)
@given(shape=SHAPES, least=st.integers(1, 8), most=st.integers(8, 64))
def test_sizes_on_both_sides_of_both_limits(shape: list[int], least: int, most: int) -> None:
    rows = found(graph(placeholder("x", *shape)), **rules(rule="size", value={"min": least, "max": most}))
    assert [int(row.measured) for row in rows] == [size for size in shape if not least <= size <= most]
    assert {row.limit for row in rows} <= {f"{least} to {most}"}


def test_an_empty_tensor_is_not_above_a_largest_size() -> None:
    for value in (30, {"max": 30}):
        (row,) = found(graph(placeholder("x", 0, 31)), **rules(rule="size", value=value))
        assert (row.measured, row.limit) == ("31", "at most 30")
        assert row.message == "x: dimension 1 of input [0, 31] float32 is 31, at most 30 being allowed"
    (row,) = found(graph(placeholder("x", 0, 31)), **rules(rule="size", value={"min": 1}))
    assert (row.measured, row.limit) == ("0", "1 or more")


def test_padding_several_dimensions_costs_what_the_whole_grows_by() -> None:
    x = graph(placeholder("x", 2, 10, 5))
    for dims, padded in (("last", 2 * 10 * 8), ("last2", 2 * 12 * 8), ("all", 4 * 12 * 8), ("first", 4 * 10 * 5)):
        rows = found(x, **rules(rule="alignment", value=4, dims=dims))
        assert sum(row.cost_bytes for row in rows) == (padded - 2 * 10 * 5) * 4
        assert sum(row.cost_share for row in rows) == pytest.approx(padded / 100 - 1)


def test_a_size_in_bytes_is_told_in_elements_too() -> None:
    (row,) = found(graph(placeholder("x", 4, 24)), **rules(rule="alignment", value=64, unit="bytes"))
    assert "is 24 elements (96 bytes), not a multiple of 64 bytes" in row.message


def test_a_size_of_no_known_value_is_told_in_a_sentence() -> None:
    x = placeholder("x", 4, "u0")
    rows = found(graph(x, symbols={"u0": {"hint": None, "min": 2, "max": None}}), alignment=16)
    message = "is u0, which has no known value: it need not be a multiple of 16 elements"
    assert [row.message.partition("] ")[2] for row in rows] == [message]


def test_padding_to_a_smallest_size_costs_what_it_adds() -> None:
    x = graph(placeholder("x", 2, 6, 5))
    pads = found(x, **rules(rule="size", value={"min": 8}, effect="pad"))
    assert [(row.cost_bytes, row.cost_share) for row in pads] == [(6 * 6 * 5 * 4, 3.0), (8 * 2 * 5 * 4, 4 / 3),
                                                                  (8 * 8 * 3 * 4, 3.2)]  # fmt: skip
    assert sum(row.cost_bytes for row in pads) == (8 * 8 * 8 - 2 * 6 * 5) * 4
    assert [row.cost_bytes for row in found(x, **rules(rule="size", value={"max": 4}, effect="pad"))] == [None, None]
    assert [row.cost_bytes for row in found(x, **rules(rule="size", value=5))] == [240]


def test_size_of_the_first_dimension_alone() -> None:
    rule = rules(rule="size", dims="first", value=1, effect="fallback", roles=["activation"])
    assert places(found(LINEAR, **rule)) == [(name, "output" if name != "x" else "input", "4")
                                            for name in ("x", "mm", "gather", "add")]  # fmt: skip


@settings(deadline=None)
@given(shape=SHAPES, tile=st.lists(st.sampled_from([1, 8, 16, 32, 128]), min_size=1, max_size=3))
def test_tiles_cost_what_padding_to_whole_ones_adds(shape: list[int], tile: list[int]) -> None:
    rows = found(graph(placeholder("x", *shape)), tile=tile)
    if not shape:
        assert rows == []
        return
    full = [1] * (len(tile) - len(shape)) + shape
    padded = full[: -len(tile)] + [math.ceil(a / b) * b for a, b in zip(full[-len(tile) :], tile, strict=True)]
    extra = (math.prod(padded) - math.prod(full)) * 4
    assert [row.cost_bytes for row in rows] == ([extra] if extra else [])


def test_tiles_of_a_matrix_by_hand() -> None:
    (row,) = found(graph(placeholder("x", 2, 33, 64)), tile=[32, 32])
    assert (row.measured, row.limit, row.effect) == ("33x64", "32x32", "pad")
    assert row.cost_bytes == 2 * (64 - 33) * 64 * 4 and row.cost_share == pytest.approx(64 / 33 - 1)


@pytest.mark.parametrize(
    ("roles", "allowed", "expected"),
    [
        (None, ["float32"], [("ids", "input", "int64")]),
        (["index"], ["int32"], [("ids", "input", "int64")]),
        (["storage"], ["float32"], []),
        (["storage"], ["float16"], [("x", "input", "float32"), ("w", "parameter", "float32")]
         + [(name, "output", "float32") for name in ("mm", "gather", "add")]),
        (["compute"], ["bfloat16"], [("mm", "args[0]", "float32"), ("mm", "args[1]", "float32")]),
        (["compute"], ["float32"], []),
        (["parameter"], ["float16"], [("w", "parameter", "float32")]),
    ],
)  # fmt: skip
def test_dtypes_by_role(roles: list[str] | None, allowed: list[str], expected: list[tuple[str, str, str]]) -> None:
    assert places(found(LINEAR, **rules(rule="dtype", roles=roles, value=allowed))) == expected


def test_an_operand_is_found_by_position_and_by_keyword() -> None:
    weight = placeholder("w", 4, 3, 65, 3, role="parameter")
    node = call("c", "aten.convolution.default", ["x"], tensor(1, 4, 8, 8))
    node.inputs.append("w")
    node.kwargs["weight"] = {"node": "w"}
    given = graph(placeholder("x", 1, 3, 80, 8), weight, node)
    assert places(found(given, **rules(rule="dtype", roles=["compute"], value=["float16"]))) == [
        ("c", "args[0]", "float32"), ("c", "args[1]", "float32"),
    ]  # fmt: skip
    assert places(found(given, alignment=8, alignment_dims="contraction")) == [("c", "args[0]", "3"),
                                                                               ("c", "args[1]", "3")]  # fmt: skip
    limits = {"max_stride": 3, "max_height": 64, "max_area": 4096, "max_weight_sum": 8323072}
    target = {"_target_": "stages.constrain.kernel_limits.convolution", **limits}
    assert [row.measured for row in found(given, **rules(rule="custom", value=target))] == ["65"]


@pytest.mark.parametrize("rule", [
    {"rule": "dtype", "roles": ["compute"], "value": ["float32"]},
    {"rule": "dtype", "roles": ["compute"], "value": {"float32": "bfloat16"}, "effect": "cast"},
    {"rule": "alignment", "dims": "contraction", "value": 5},
])  # fmt: skip
@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("torch.einsum", "dynamo"),
        ("torch.nn.functional.multi_head_attention_forward", "dynamo"),
        ("torch.nn.functional.conv_transpose2d", "dynamo"),
        ("torch._VF.lstm", "dynamo"),
        ("aten._scaled_dot_product_efficient_attention_backward.default", "backward"),
        ("aten._trilinear.default", "forward"),
        ("higher_order.triton_kernel_wrapper_functional", "forward"),
    ],
)
def test_what_an_operation_multiplies_is_read_or_not_established(rule: dict[str, Any], target: str, kind: str) -> None:
    node = call("y", target, ["x", "x"], tensor(5, 5))
    (row,) = found(graph(placeholder("x", 5, 5), node, kind=kind), **rules(**rule))
    assert (row.node, row.severity, row.measured) == ("y", "undecided", target)
    assert "not established" in row.message


@pytest.mark.parametrize(
    ("target", "inputs", "expected"),
    [
        ("aten.convolution.default", ["x", "w", None, [1], [0], [1], False, [0], 1], ["6", "3"]),
        ("aten.convolution.default", ["x", "w", None, [1], [0], [1], True, [0], 1], ["6", "7"]),
        ("aten.convolution_backward.default", ["x", "x", "w", None, [1], [0], [1], False, [0], 1], ["6", "7"]),
        ("aten.convolution_backward.default", ["x", "x", "w", None, [1], [0], [1], True, [0], 1], ["6", "3"]),
        ("torch.conv1d", ["x", "w"], ["6", "3"]),
        ("torch.conv1d", ["unbatched", "w"], ["6", "3"]),
    ],
)
def test_channels_that_a_convolution_contracts(target: str, inputs: list[Any], expected: list[str]) -> None:
    made = [placeholder("x", 2, 6, 8), placeholder("unbatched", 6, 8), placeholder("w", 7, 3, 5, role="parameter")]
    given = graph(*made, call("c", target, inputs, tensor(1)))
    assert [row.measured for row in found(given, alignment=16, alignment_dims="contraction")] == expected


BATCH, W, V = [2, 24, 5, 5], [32, 6, 3, 3], [24, 8, 3, 3]  # of 24 channels and, in 4 groups, of 32: 6 and 8 in each


@pytest.mark.parametrize(
    ("target", "inputs", "expected"),
    [
        ("aten.convolution.default", ["x", "w", None, [1], [0], [1], False, [0], 4], [("args[0]", 6), ("args[1]", 6)]),
        ("torch.conv2d", ["x", "w", None, 1, 0, 1, 4], [("args[0]", 6), ("args[1]", 6)]),
        ("aten.convolution.default", ["x", "v", None, [1], [0], [1], True, [0], 4], [("args[0]", 6), ("args[1]", 6)]),
        ("aten.convolution_backward.default", ["g", "x", "w", None, [1], [0], [1], False, [0], 4, [True, True, True]],
         [("args[0]", 8), ("args[2]", 8)]),
        ("aten.convolution_backward.default", ["g", "x", "v", None, [1], [0], [1], True, [0], 4, [True, True, True]],
         [("args[0]", 8), ("args[2]", 8)]),
        ("aten.convolution_backward.default", ["g", "x", "w", None, [1], [0], [1], False, [0], 4, [False, True, True]],
         []),
    ],
)  # fmt: skip
def test_a_group_contracts_its_own_channels(target: str, inputs: list[Any], expected: list[tuple[str, int]]) -> None:
    made = [placeholder("x", *BATCH), placeholder("g", 2, 32, 3, 3), placeholder("w", *W), placeholder("v", *V)]
    given = graph(*made, call("c", target, inputs, tensor(1)))
    for limit in (16, 32):
        rows = found(given, alignment=limit, alignment_dims="contraction")
        assert [(row.operand, int(row.measured)) for row in rows] == expected
        for row in rows:
            source = given.node(str(inputs[int(row.operand[5])])).outputs[0]
            parts = 1 if int(row.measured) in source.shape[:2] else 4
            assert row.cost_bytes == source.nbytes // int(row.measured) * (limit - int(row.measured))
            assert row.suggestion.startswith(f"use {limit * parts} (")
    assert found(given, alignment=2, alignment_dims="contraction") == []


def test_a_group_of_one_channel_contracts_none() -> None:
    made = [placeholder("x", 2, 24, 5, 5), placeholder("w", 24, 1, 3, 3)]
    node = call("c", "aten.convolution.default", ["x", "w", None, [1], [0], [1], False, [0], 24], tensor(1))
    assert found(graph(*made, node), alignment=16, alignment_dims="contraction") == []


@pytest.mark.parametrize(("mask", "read"), [([True, False], [0, 2]), ([False, True], [0, 1]), ([True, True], [0, 2, 1]),
                                           ([False, False], [])])  # fmt: skip
def test_a_backward_multiplies_what_its_gradients_need(mask: list[bool], read: list[int]) -> None:
    made = [placeholder("x", *BATCH), placeholder("g", 2, 32, 3, 3), placeholder("w", *W)]
    inputs = ["g", "x", "w", None, [1], [0], [1], False, [0], 4, [*mask, False]]
    given = graph(*made, call("c", "aten.convolution_backward.default", inputs, tensor(1)))
    rows = found(given, **rules(rule="dtype", roles=["compute"], value=["float16"]))
    assert [row.operand for row in rows] == [f"args[{index}]" for index in read]


def test_an_operand_without_a_shape_is_not_established_for_dtypes_either() -> None:
    rule = rules(rule="dtype", roles=["compute"], value=["float32"])
    node = call("y", "torch.matmul", ["x", 3], tensor(5))
    assert [(row.operand, row.severity) for row in found(graph(placeholder("x", 5), node, kind="dynamo"), **rule)] == [
        ("args[1]", "undecided")
    ]
    named = call("y", "torch.mm", [], tensor(5, 5), kwargs={"input": {"node": "x"}, "mat2": {"node": "x"}})
    assert found(graph(placeholder("x", 5, 5), named, kind="dynamo"), **rule) == []


@pytest.mark.parametrize(
    ("found_dtype", "allowed", "told"),
    [
        ("int64", ["float16", "float32"], "there is no supported dtype of this kind"),
        ("int64", ["float16", "int8", "int32"], "use int32"),
        ("float64", ["int64", "bfloat16"], "use bfloat16"),
        ("float64", ["int8"], "there is no supported dtype of this kind"),
        ("float32", ["int32", "float8_e5m2"], "use float8_e5m2"),
        ("complex64", ["float32"], "there is no supported dtype of this kind"),
        ("bool", ["float16", "int8"], "use int8"),
        ("bool", ["float16"], "there is no supported dtype of this kind"),
    ],
)
def test_a_dtype_of_the_same_kind_is_suggested(found_dtype: str, allowed: list[str], told: str) -> None:
    (row,) = found(graph(placeholder("x", 4, dtype=found_dtype)), dtypes=allowed)
    assert row.suggestion == told


def test_a_mapping_of_dtypes_casts_unless_it_says_otherwise() -> None:
    for effect, expected in ((None, "cast"), ("reject", "reject")):
        (row,) = found(LINEAR, **rules(rule="dtype", effect=effect, value={"int64": "int32"}))
        assert row.effect == expected


def test_a_dtype_that_becomes_another() -> None:
    (row,) = found(LINEAR, **rules(rule="dtype", effect="cast", value={"int64": "int32"}))
    assert (row.node, row.measured, row.limit, row.effect, row.cost_bytes) == ("ids", "int64", "int32", "cast", 32)
    assert "is int32 on this accelerator" in row.message


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (["aten.mm"], ["args[0]", "args[1]", "output"]),
        (["!aten.mm", "!aten.index"], ["args[0]", "args[1]", "output"]),
        (["aten.*mm*", "!aten.mm"], []),
    ],
)
def test_a_rule_for_some_operations(operations: list[str], expected: list[str]) -> None:
    rows = found(LINEAR, **rules(rule="dtype", value=["float16"], operations=operations))
    assert [row.operand for row in rows] == expected


def test_what_a_dynamo_graph_may_become_is_undecided() -> None:
    rule = rules(rule="alignment", dims="contraction", value=8, operations=["aten.addmm"])
    nodes = (placeholder("x", 5, 17), placeholder("w", 19, 17, role="parameter"))
    dynamo = graph(*nodes, call("y", "torch.nn.functional.linear", ["x", "w"], tensor(5, 19)), kind="dynamo")
    assert [(row.node, row.severity, row.limit) for row in found(dynamo, **rule)] == [("y", "undecided", "aten.addmm")]
    product = call("y", "aten.addmm.default", ["w", "x", "w"], tensor(5, 19))
    assert {row.severity for row in found([dynamo, graph(*nodes, product)], **rule)} == {"warning"}


def test_a_fallback_tells_the_share_of_flops() -> None:
    rows = found(LINEAR, **rules(rule="dtype", effect="fallback", value=["float16"], operations=["aten.add"]))
    total = 2 * 4 * 100 * 24 + 2 * 4 * 24
    assert {row.cost_share for row in rows} == {2 * 4 * 24 / total}


@pytest.mark.parametrize(
    ("stride", "offset", "expected"),
    [((128, 1), 0, []), ((100, 1), 0, ["[400]"]), ((128, 1), 8, ["offset 32"]), ((100, 1), 8, ["[400]", "offset 32"])],
)
def test_strides_and_offsets_in_bytes(stride: tuple[int, int], offset: int, expected: list[str]) -> None:
    x = placeholder("x", 4, 100, stride=stride, storage_offset=offset)
    rule = rules(rule="layout", unit="bytes", value={"stride": 128, "offset": 128})
    assert [row.measured for row in found(graph(x), **rule)] == expected


def test_a_span_reaches_from_the_first_byte_to_the_last() -> None:
    x = placeholder("x", 4, 8, stride=(1000, 1))
    rule = {"rule": "memory_tensor", "unit": "span_bytes"}
    assert found(graph(x), **rules(**rule, value=(3 * 1000 + 7 + 1) * 4)) == []
    (row,) = found(graph(x), **rules(**rule, value=(3 * 1000 + 7 + 1) * 4 - 1))
    assert (row.measured, row.rule) == ("12032", "memory_tensor")


def test_peak_memory_is_what_lives_at_once() -> None:
    x = placeholder("x", 256)  # 1,024 bytes, the caller's: alive throughout
    chain = graph(
        x,
        call("a", "aten.exp.default", ["x"], tensor(256)),
        call("b", "aten.exp.default", ["a"], tensor(256)),
        call("c", "aten.exp.default", ["b"], tensor(256)),
    )
    assert found(chain, max_peak_bytes=3 * 1024) == []
    (row,) = found(chain, max_peak_bytes=3 * 1024 - 1)
    assert (row.node, row.measured, row.cost_bytes, row.rule) == ("b", "3072", 1, "memory_peak")


def test_what_is_not_on_the_allow_list() -> None:
    rows = found(LINEAR, allowed=["aten.mm", "aten.a*"])
    assert [(row.node, row.limit) for row in rows] == [("gather", "one of 2 allowed")]
    assert found(LINEAR, allowed=["aten.mm", "aten.add.Tensor", "aten.index"]) == []
    assert len(found(LINEAR, allowed=[])) == 3
    dynamo = graph(placeholder("x", 4), call("r", "torch.nn.functional.gelu", ["x"], tensor(4)), kind="dynamo")
    assert [row.severity for row in found(dynamo, allowed=["aten.add"])] == ["undecided"]
    assert found(dynamo, allowed=["aten.gelu"]) == []


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


def test_a_view_costs_no_padding() -> None:
    view = call("t", "aten.t.default", ["x"], tensor(10, 16), aliases=True)
    rows = found(graph(placeholder("x", 16, 10), view), alignment=8)
    assert [(row.node, row.cost_bytes) for row in rows] == [("x", 16 * 6 * 4)]
    rows = found(graph(placeholder("x", 16, 10), call("t", "aten.t.default", ["x"], tensor(16, 10), aliases=True)),
                 rules=[Rule(rule="alignment", value=8, dims="first")])  # fmt: skip
    assert rows == []
    other = call("v", "aten.view.default", ["x"], tensor(32, 5), aliases=True)
    assert [row.cost_bytes for row in found(graph(placeholder("x", 16, 10), other), alignment=8)] == [384, None]


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
