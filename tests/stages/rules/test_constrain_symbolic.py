"""Symbolic sizes: decided by their ranges where they can be, else undecided, by every rule."""

from dataclasses import replace
from typing import Any

import pytest
from constrain_graphs import call, found, graph, placeholder, rules, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.symbolic_sizes import bounds, values

OPEN = {"s0": {"hint": 3, "min": 2, "max": None}, "u0": {"hint": None, "min": 0, "max": None}}


@pytest.mark.parametrize(
    ("shape", "severities"),
    [
        (("32*s0", 64), []),
        (("16*s0", 64), ["warning"]),
        (("32*s0", 33), ["warning"]),
        (("u0", 64), ["undecided"]),
        (("u0", 33), ["warning"]),
        (("32*u0", 64), []),
        ((0, "u0"), []),
    ],
)
def test_tiles_of_symbolic_sizes_are_decided_as_alignment_is(shape: tuple[Any, ...], severities: list[str]) -> None:
    given = graph(placeholder("x", *shape), symbols=OPEN)
    assert [row.severity for row in found(given, tile=[32, 32])] == severities


@pytest.mark.parametrize("fields", [{"alignment": 4}, {"tile": [4]}])
@pytest.mark.parametrize(
    ("symbols", "severities"),
    [
        ({"u0": {"hint": None, "min": 4, "max": 4}}, []),
        ({"u0": {"hint": None, "min": 5, "max": 7}}, ["warning"]),
        ({"u0": {"hint": None, "min": 4, "max": 7}}, ["undecided"]),
        ({"u0": {"hint": None, "min": 5, "max": None}}, ["undecided"]),
    ],
)
def test_a_size_without_a_value_is_decided_by_its_range(
    fields: dict[str, Any], symbols: dict[str, Any], severities: list[str]
) -> None:
    rows = found(graph(placeholder("x", 2, "u0"), symbols=symbols), **fields)
    assert [row.severity for row in rows] == severities
    assert {row.cost_bytes for row in rows} <= {None}


def test_a_symbolic_size_that_is_one_in_this_case_need_not_be() -> None:
    x = placeholder("x", 2, "s0", hints=[2, 1])
    assert [row.severity for row in found(graph(x), alignment=8)] == ["undecided"]
    assert [row.severity for row in found(graph(x), alignment=8, alignment_dims="all")] == ["warning", "warning"]


@pytest.mark.parametrize(
    ("size", "ends", "value", "told"),
    [
        ("s0", (2, 64), 48, ("2 to 64", "bound the size to 2 to 48", "min=2, max=48")),
        ("s0", (2, None), 48, ("2 or more", "bound the size to 2 to 48", "min=2, max=48")),
        ("s0", (2, 64), {"min": 4}, ("2 to 64", "bound the size to 4 to 64", "min=4, max=64")),
        ("s0", (2, None), {"min": 4}, ("2 or more", "bound the size to 4 or more", "min=4, max=N")),
        ("2*s0", (2, 64), 48, ("4 to 128", "bound the symbols of 2*s0, so that it is 4 to 48", "min=M, max=N")),
    ],
)
def test_an_undecided_size_shows_its_range_and_a_bound_that_decides(
    size: str, ends: tuple[int, int | None], value: Any, told: tuple[str, ...]
) -> None:
    symbols = {"s0": {"hint": 5, "min": ends[0], "max": ends[1]}}
    x = placeholder("x", size, hints=[10 if "*" in size else 5])
    (row,) = found(graph(x, symbols=symbols), rules=[Rule("size", value=value)])
    allowed, bound, call = told
    assert row.severity == "undecided" and f"it may be {allowed}" in row.message
    assert bound in row.suggestion and f"mark_dynamic(x, DIMENSION, {call})" in row.suggestion


DYNAMIC = {"s0": {"hint": 4, "min": 2, "max": None}, "s1": {"hint": 16, "min": 2, "max": None},
           "u0": {"hint": None, "min": 0, "max": None}}  # fmt: skip


ALL = {"stride": 16, "offset": 16}


@pytest.mark.parametrize(
    ("shape", "stride", "offset", "value", "severities"),
    [
        (("s0", "s1", 8), ("8*s1", 8, 1), 0, "contiguous", []),
        (("s0", "s1", 8), ("8*Max(1, s1)", 8, 1), 0, "contiguous", []),
        (("u0", "s1", 8), ("8*s1", 8, 1), 0, "contiguous", []),
        ((2, "u0", 8), ("8*u0", 8, 1), 0, "contiguous", []),
        (("s0", "s1", 8), (128, 8, 1), 0, "contiguous", ["undecided"]),
        (("s0", "s1", 8), (8, "8*s0", 1), 0, "contiguous", ["warning"]),
        (("s0", 8), (8, 1), "s0 - 4", "contiguous", ["undecided"]),
        (("s0", 8), (8, 1), "s0", "contiguous", ["warning"]),
        ((2, 3, "s0", "s1"), ("3*s0*s1", 1, "3*s1", 3), 0, "channels_last", []),
        ((2, 3, "s0", "s1"), ("3*s0*s1", "s0*s1", "s1", 1), 0, "channels_last", ["warning"]),
        (("s0", 16), ("16*s1", 1), 0, ALL, []),
        (("s0", 16), ("s1", 1), 0, ALL, ["undecided"]),
        (("s0", 16), ("s0", 1), 0, ALL, ["warning"]),
        (("s0", 16), (16, 1), "s1", ALL, ["undecided"]),
        (("s0", 16), (16, 1), "s0", ALL, ["warning"]),
        (("s0", 16), (16, 1), "16*u0", ALL, []),
        (("s0", 16), (16, 1), "u0", ALL, ["undecided"]),
    ],
)
def test_symbolic_strides_fit_for_good_or_are_undecided(
    shape: Any, stride: Any, offset: Any, value: Any, severities: list[str]
) -> None:
    x = placeholder("x", *shape, stride=stride, storage_offset=offset)
    rows = found(graph(x, symbols=DYNAMIC), **rules(rule="layout", value=value))
    assert [row.severity for row in rows] == severities


@pytest.mark.parametrize(
    ("size", "symbols", "severities"),
    [
        ("s0", {"s0": {"hint": 8, "min": 2, "max": 64}}, []),
        ("s0", {"s0": {"hint": 8, "min": 2, "max": None}}, ["undecided"]),
        ("s0*16", {"s0": {"hint": 8, "min": 2, "max": None}}, ["warning"]),
        ("s0*16", {"s0": {"hint": 8, "min": 5, "max": 9}}, ["warning"]),
        ("u0", {"u0": {"hint": None, "min": 0, "max": None}}, ["undecided"]),
        ("Min(s0, 64)", {"s0": {"hint": 8, "min": 2, "max": None}}, []),
    ],
)
def test_symbolic_sizes_by_their_ranges(size: str, symbols: dict[str, Any], severities: list[str]) -> None:
    hints = {"s0": [8], "s0*16": [128], "Min(s0, 64)": [8]}.get(size)
    x = placeholder("x", size, hints=hints)
    assert [row.severity for row in found(graph(x, symbols=symbols), max_size=64)] == severities


@pytest.mark.parametrize(
    ("symbols", "severities"),
    [
        ({"s0": {"hint": 4, "min": 4, "max": 4}}, []),
        ({"s0": {"hint": 4, "min": 3, "max": 4}}, ["undecided"]),
        ({"s0": {"hint": 3, "min": 3, "max": 4}}, ["warning"]),
    ],
)
def test_alignment_tries_the_values_of_a_narrow_range(symbols: dict[str, Any], severities: list[str]) -> None:
    x = placeholder("x", "s0", hints=[symbols["s0"]["hint"]])
    assert [row.severity for row in found(graph(x, symbols=symbols), alignment=4)] == severities


def test_symbolic_memory_is_decided_by_its_range() -> None:
    x = placeholder("x", "s0", 4, hints=[10, 4])
    bounded = {"s0": {"hint": 10, "min": 1, "max": 100}}
    assert found(graph(x, symbols=bounded), max_tensor_bytes=1600) == []
    assert [row.severity for row in found(graph(x, symbols=bounded), max_tensor_bytes=1599)] == ["undecided"]
    assert [row.severity for row in found(graph(x, symbols=bounded), max_tensor_bytes=159)] == ["warning"]


def test_a_size_without_a_value_may_break_a_limit_for_good() -> None:
    x = placeholder("x", "u0", 4)
    at_least = {"u0": {"hint": None, "min": 100, "max": None}}
    at_most = {"u0": {"hint": None, "min": 0, "max": 3}}
    assert [row.severity for row in found(graph(x, symbols=at_least), max_size=64)] == ["warning"]
    assert [row.severity for row in found(graph(x, symbols=at_least), max_size=100)] == ["undecided"]
    at_least_10 = rules(rule="size", dims="first", value={"min": 10})
    assert [row.severity for row in found(graph(x, symbols=at_most), **at_least_10)] == ["warning"]
    for field in ("max_tensor_bytes", "max_peak_bytes"):
        limits = {1599: "warning", 1600: "undecided"}
        for limit, severity in limits.items():
            assert [row.severity for row in found(graph(x, symbols=at_least), **{field: limit})] == [severity]
        assert found(graph(x, symbols=at_most), **{field: 48}) == []
        assert [row.severity for row in found(graph(x, symbols=at_most), **{field: 47})] == ["undecided"]


def test_a_peak_is_bounded_by_the_storage_that_a_part_keeps_alive() -> None:
    part = placeholder("x", "s0", 10, hints=[4, 10], role="saved")
    part = replace(part, outputs=[replace(part.outputs[0], storage_bytes="120*s0", storage_hint=480)])
    given = graph(part, symbols={"s0": {"hint": 4, "min": 2, "max": 8}})
    assert found(given, max_peak_bytes=960) == []
    assert [row.severity for row in found(given, max_peak_bytes=959)] == ["undecided"]
    assert [(row.severity, row.measured) for row in found(given, max_peak_bytes=479)] == [("warning", "480")]


def test_a_peak_that_fits_in_this_case_need_not() -> None:
    x = placeholder("x", "s0", 4, hints=[10, 4])
    chain = (x, call("y", "aten.exp.default", ["x"], tensor("s0", 4, hints=[10, 4])))
    bounded = graph(*chain, symbols={"s0": {"hint": 10, "min": 2, "max": 100}})
    assert found(bounded, max_peak_bytes=2 * 1600) == []
    assert [row.severity for row in found(bounded, max_peak_bytes=2 * 1600 - 1)] == ["undecided"]
    assert [row.severity for row in found(bounded, max_peak_bytes=2 * 160 - 1)] == ["warning"]
    opened = graph(*chain, symbols={"s0": {"hint": 10, "min": 2, "max": None}})
    (row,) = found(opened, max_peak_bytes=1 << 40)
    assert row.severity == "undecided" and "may be any number" in row.message


@pytest.mark.parametrize(("value", "expected"), [("static", ["s0", "s1"]), ("bounded", ["s1"])])
def test_symbolic_sizes_where_they_first_appear(value: str, expected: list[str]) -> None:
    symbols = {"s0": {"hint": 4, "min": 2, "max": 9}, "s1": {"hint": 5, "min": 2, "max": None}}
    x = placeholder("x", "s0", "s1", hints=[4, 5])
    y = call("y", "aten.relu.default", ["x"], tensor("s0", "s1", hints=[4, 5]))
    double = call("z", "aten.cat.default", ["y"], tensor("2*s0", "s1", hints=[8, 5]))
    rows = found(graph(x, y, double, symbols=symbols), dynamic_shapes=value)
    assert [(row.node, row.measured) for row in rows] == [("x", name) for name in expected]


@settings(deadline=None)
@given(a=st.integers(1, 9), b=st.integers(1, 9), low=st.integers(0, 5), width=st.integers(0, 5), pick=st.integers(0, 5))
def test_bounds_hold_every_value(a: int, b: int, low: int, width: int, pick: int) -> None:
    symbols = {"s0": {"hint": None, "min": low, "max": low + width}}
    s0 = low + min(pick, width)
    for expression, value in [
        (f"{a}*s0 + {b}", a * s0 + b),
        (f"s0 - {a}", s0 - a),
        (f"(s0 + {a})//{b}", (s0 + a) // b),
        (f"s0 % {b}", s0 % b),
        (f"FloorDiv(s0, {b})", s0 // b),
        (f"Mod(s0, {b})", s0 % b),
        (f"Max({a}, s0)", max(a, s0)),
        (f"s0**2 - {b}", s0**2 - b),
        (f"-s0*{a}", -s0 * a),
    ]:
        least, most = bounds(expression, symbols)
        assert least is not None and most is not None and least <= value <= most, expression
        assert value in (values(expression, symbols) or []), expression
