"""Rank, sizes, tiles, dtypes by role, strides, memory and allow lists: each by hand."""

import math
from dataclasses import replace

import pytest
from constrain_graphs import LINEAR, call, found, graph, placeholder, places, rules, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.liveness import peak_live

SHAPES = st.lists(st.integers(1, 70), min_size=0, max_size=6)


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


def test_peak_memory_counts_a_storage_once_and_whole() -> None:
    """Two parts of 4,096 saved bytes, and a view of a parameter of 1,024, which is never freed."""
    wide = placeholder("a", 256, role="saved")
    wide = replace(wide, outputs=[replace(wide.outputs[0], storage_bytes=4096)])
    part = replace(placeholder("b", 256, role="saved"), shares="a")
    weight = replace(placeholder("w", 256, role="saved"), shares="primals_1")
    sums = [
        call("c", "aten.add.Tensor", ["a", "b"], tensor(256)),
        call("d", "aten.mul.Tensor", ["c", "w"], tensor(256)),
        call("e", "aten.exp.default", ["d"], tensor(4096)),
        call("f", "aten.sum.default", ["e"], tensor()),
    ]
    given = graph(wide, part, weight, *sums, kind="backward")
    assert peak_live(given) == (1024 + 1024 + 4 * 4096, "e")  # w, d and e; a and b went when c was made
    assert peak_live(replace(given, nodes=given.nodes[:4])) == (4096 + 1024 + 1024, "c")
    (row,) = found(given, max_peak_bytes=1024)
    assert row.measured == str(1024 + 1024 + 4 * 4096)


def test_what_is_not_on_the_allow_list() -> None:
    rows = found(LINEAR, allowed=["aten.mm", "aten.a*"])
    assert [(row.node, row.limit) for row in rows] == [("gather", "one of 2 allowed")]
    assert found(LINEAR, allowed=["aten.mm", "aten.add.Tensor", "aten.index"]) == []
    assert len(found(LINEAR, allowed=[])) == 3
    dynamo = graph(placeholder("x", 4), call("r", "torch.nn.functional.gelu", ["x"], tensor(4)), kind="dynamo")
    assert [row.severity for row in found(dynamo, allowed=["aten.add"])] == ["undecided"]
    assert found(dynamo, allowed=["aten.gelu"]) == []


def test_a_view_costs_no_padding() -> None:
    view = call("t", "aten.t.default", ["x"], tensor(10, 16), aliases=True)
    rows = found(graph(placeholder("x", 16, 10), view), alignment=8)
    assert [(row.node, row.cost_bytes) for row in rows] == [("x", 16 * 6 * 4)]
    rows = found(graph(placeholder("x", 16, 10), call("t", "aten.t.default", ["x"], tensor(16, 10), aliases=True)),
                 rules=[Rule(rule="alignment", value=8, dims="first")])  # fmt: skip
    assert rows == []
    other = call("v", "aten.view.default", ["x"], tensor(32, 5), aliases=True)
    assert [row.cost_bytes for row in found(graph(placeholder("x", 16, 10), other), alignment=8)] == [384, None]
