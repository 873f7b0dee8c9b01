"""A graph of each kind, as torch gives it, with violations derived by hand: none more, none less."""

import pytest
import torch
from capture_models import Small, case_of
from constrain_graphs import found, graph, placeholder
from hypothesis import given, settings
from hypothesis import strategies as st

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.records import ITEM_BYTES, GraphRecord
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.layout import strides_of
from inductor_debug.stages.torch_internals.fx_records import RecordContext, graph_record

# Small: x[5, 4] -> Linear(4, 8) -> relu -> LayerNorm(8). Widths of 4 and 5 are no multiples of 8.


@pytest.fixture(scope="module")
def step() -> list[GraphRecord]:
    """One training step: Dynamo's, joint, forward and backward graph."""
    return capture(case_of(Small(), torch.ones(5, 4), mode="training")).graphs


@pytest.fixture(scope="module")
def exported() -> GraphRecord:
    """The model as torch.export gives it, with a batch from 2 to 64: composites are whole."""
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Small(), (torch.ones(5, 4),), dynamic_shapes=({0: batch},))
    return graph_record(program.graph, id="g0.exported", context=RecordContext.of(program.module()))


@pytest.fixture(scope="module")
def dynamic() -> list[GraphRecord]:
    """The model with a batch that has no largest value."""
    return capture(case_of(Small(), torch.ones(5, 4)), dynamic=True).graphs


def of_kind(graphs: list[GraphRecord], kind: str) -> GraphRecord:
    return next(graph for graph in graphs if graph.kind == kind)


def widths(graphs: GraphRecord | list[GraphRecord]) -> list[tuple[str, str, str]]:
    return [(row.target, row.operand, row.measured) for row in check(graphs, AccelConfig(alignment=8))]


def test_dynamo(step: list[GraphRecord]) -> None:
    assert widths(of_kind(step, "dynamo")) == [("first.weight", "parameter", "4"), ("x", "input", "4")]
    rows = check(of_kind(step, "dynamo"), AccelConfig(denied=["aten.native_layer_norm", "aten.addmm", "aten.gelu"]))
    assert [(row.target, row.severity) for row in rows] == [
        ("torch.nn.functional.linear", "undecided"), ("torch.relu", "undecided"),
        ("torch.nn.functional.layer_norm", "warning"),
    ]  # fmt: skip


def test_forward(step: list[GraphRecord]) -> None:
    assert widths(of_kind(step, "forward")) == [("first.weight", "parameter", "4"), ("x", "input", "4")]
    rows = check(of_kind(step, "forward"), AccelConfig(layout="contiguous"))
    assert [(row.target, row.measured) for row in rows] == [("aten.t.default", "[1, 4]")]  # the weight, turned


def test_backward(step: list[GraphRecord]) -> None:
    of_the_gradient = [
        ("aten.t.default", "output", "5"),  # the gradient of the linear's output, turned: [8, 5]
        ("aten.mm.default", "output", "4"),  # the gradient of the weight: [8, 4]
        ("aten.t.default", "output", "4"),  # the same, turned there and back
    ]
    assert widths(of_kind(step, "backward")) == [("x", "input", "4"), *of_the_gradient]
    # together with its forward, which has shown x
    assert widths(step) == [("first.weight", "parameter", "4"), ("x", "input", "4"), *of_the_gradient]


def test_exported(exported: GraphRecord) -> None:
    # what export lifts is an input here
    assert widths(exported) == [("p_first_weight", "input", "4"), ("x", "input", "4")]
    rows = check(exported, AccelConfig(denied=["aten.native_layer_norm", "aten.addmm"]))
    assert [(row.target, row.severity) for row in rows] == [
        ("aten.linear.default", "undecided"), ("aten.layer_norm.default", "warning"),
    ]  # fmt: skip
    batch = Rule(rule="alignment", dims="contraction", value=8, operations=["aten.addmm", "aten.linear"])
    assert [(row.operand, row.severity) for row in check(exported, AccelConfig(rules=[batch]))] == [
        ("", "undecided"), ("args[0]", "warning"), ("args[1]", "warning"),
    ]  # fmt: skip
    assert not check(exported, AccelConfig(max_size=64)) and not check(exported, AccelConfig(dynamic_shapes="bounded"))
    assert [row.severity for row in check(exported, AccelConfig(max_size=63))] == ["undecided"] * 4
    assert not check(exported, AccelConfig(max_tensor_bytes=64 * 8 * 4))
    assert {row.target for row in check(exported, AccelConfig(max_tensor_bytes=64 * 8 * 4 - 1))} == {
        "aten.linear.default", "aten.relu.default", "aten.layer_norm.default",
    }  # fmt: skip


def test_dynamic(dynamic: list[GraphRecord]) -> None:
    assert widths(dynamic) == [("first.weight", "parameter", "4"), ("x", "input", "4")]
    forward = of_kind(dynamic, "forward")
    assert [row.target for row in check(forward, AccelConfig(dynamic_shapes="bounded"))] == ["x"]
    first = check(forward, AccelConfig(alignment=5, alignment_dims="all", alignment_roles=["activation"]))
    # the batch is 5 here and need not be: x, addmm, relu and three outputs of layer norm; other dimensions, those of
    # the turned weight [4, 8] among them, are no multiples
    assert [row.severity for row in first].count("undecided") == 6
    assert sorted(row.measured for row in first if row.severity == "warning") == [
        "1",
        "1",
        "4",
        "4",
        "8",
        "8",
        "8",
        "8",
    ]
    assert [row.target for row in check(forward, AccelConfig(layout="contiguous"))] == ["aten.t.default"]


DTYPES = st.sampled_from(sorted(set(ITEM_BYTES) - {"complex32"}))  # of which torch warns


@settings(deadline=None)
@given(dtype=DTYPES, allowed=st.lists(DTYPES, min_size=1, unique=True))
def test_any_dtype_is_allowed_or_told(dtype: str, allowed: list[str]) -> None:
    rows = found(graph(placeholder("x", 3, dtype=dtype)), dtypes=allowed)
    assert [row.measured for row in rows] == ([] if dtype in allowed else [dtype])
    becomes = found(graph(placeholder("x", 3, dtype=dtype)),
                    rules=[Rule("dtype", value=dict.fromkeys(allowed, "float32"), effect="cast")])  # fmt: skip
    assert [(row.measured, row.limit) for row in becomes] == ([(dtype, "float32")] if dtype in allowed else [])


@settings(deadline=None)
@given(shape=st.lists(st.integers(1, 9), min_size=4, max_size=5), order=st.randoms(), offset=st.integers(0, 3))
def test_any_order_of_dimensions_is_a_layout_or_told(shape: list[int], order: object, offset: int) -> None:
    dimensions = list(range(len(shape)))
    order.shuffle(dimensions)  # type: ignore[attr-defined]
    dense = torch.empty([shape[dimension] for dimension in dimensions])
    turned = dense.permute([dimensions.index(dimension) for dimension in range(len(shape))])
    x = placeholder("x", *shape, stride=turned.stride(), storage_offset=offset)
    formats = {"contiguous": torch.contiguous_format,
               "channels_last": torch.channels_last if len(shape) == 4 else torch.channels_last_3d}  # fmt: skip
    for layout, memory_format in formats.items():
        rows = [row.measured for row in found(graph(x), layout=layout)]
        fits = turned.is_contiguous(memory_format=memory_format)
        assert rows == [*([] if fits else [str(list(turned.stride()))]), *([f"offset {offset}"] if offset else [])]


@settings(deadline=None)
@given(stride=st.integers(2, 200), offset=st.integers(0, 200), limit=st.integers(1, 64),
       dtype=st.sampled_from(["float16", "float32"]))  # fmt: skip
def test_strides_and_offsets_on_both_sides_of_a_multiple(stride: int, offset: int, limit: int, dtype: str) -> None:
    x = graph(placeholder("x", 3, 2, stride=(stride, 1), storage_offset=offset, dtype=dtype))
    for unit, item in (("elements", 1), ("bytes", ITEM_BYTES[dtype])):
        rule = Rule("layout", unit=unit, value={"stride": limit, "offset": limit})
        wrong = [stride * item % limit > 0, offset * item % limit > 0]
        assert len(found(x, rules=[rule])) == sum(wrong)


@settings(deadline=None)
@given(shape=st.lists(st.integers(1, 20), max_size=4), dtype=DTYPES, limit=st.integers(1, 4000))
def test_bytes_on_both_sides_of_a_limit(shape: list[int], dtype: str, limit: int) -> None:
    nbytes = torch.empty(shape, dtype=getattr(torch, dtype), device="meta").nbytes
    x = graph(placeholder("x", *shape, dtype=dtype, stride=strides_of(shape, "contiguous")))
    for fields in ({"max_tensor_bytes": limit}, {"max_peak_bytes": limit},
                   {"rules": [Rule("memory_tensor", unit="span_bytes", value=limit)]}):  # fmt: skip
        assert [int(row.measured) for row in found(x, **fields)] == ([nbytes] if nbytes > limit else [])
