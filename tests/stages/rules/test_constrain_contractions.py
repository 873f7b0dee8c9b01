"""What matrix products, attention and convolutions contract, by hand."""

from typing import Any

import pytest
from constrain_graphs import call, found, graph, placeholder, places, rules, tensor


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
    target = {"_target_": "inductor_debug.stages.rules.kernel_limits.convolution", **limits}
    assert [row.measured for row in found(given, **rules(rule="custom", value=target))] == ["65"]


@pytest.mark.parametrize("rule", [
    {"rule": "dtype", "roles": ["compute"], "value": ["float32"]},
    {"rule": "dtype", "roles": ["compute"], "value": {"float32": "bfloat16"}, "effect": "cast"},
    {"rule": "alignment", "dims": "contraction", "value": 5},
    {"rule": "alignment", "roles": ["compute"], "value": 5},
    {"rule": "tile", "roles": ["result"], "value": [5]},
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
            each = f", {limit} in each of {parts} groups" if parts > 1 else ""
            sizes = f"from {int(row.measured) * parts} to {limit * parts} elements"
            assert row.suggestion == f"pad it {sizes}{each}, or let the compiler pad it"
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
    ("fields", "expected"),
    [
        ({"roles": ["compute"]}, [("args[1]", "3x20", "16x16"), ("args[2]", "20x24", "16x16")]),
        ({"roles": ["result"]}, [("output", "3x24", "16x16")]),
        ({"roles": ["compute", "result"], "dims": "free"},
         [("args[1]", "3x20", "16x1"), ("args[2]", "20x24", "1x16"), ("output", "3x24", "16x16")]),
        ({"roles": ["parameter"], "dims": "free"}, [("parameter", "1x24", "16x16"), ("parameter", "20x24", "16x16")]),
        ({"roles": ["compute", "parameter"]}, [("parameter", "1x24", "16x16"), ("parameter", "20x24", "16x16"),
                                               ("args[1]", "3x20", "16x16"), ("args[2]", "20x24", "16x16")]),
    ],
)  # fmt: skip
def test_tiles_of_what_a_product_multiplies_and_gives(
    fields: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    given = graph(
        placeholder("b", 24, role="parameter"),
        placeholder("x", 3, 20),
        placeholder("w", 20, 24, role="parameter"),
        call("m", "aten.addmm.default", ["b", "x", "w"], tensor(3, 24)),
        call("r", "aten.relu.default", ["m"], tensor(3, 24)),
    )
    rows = found(given, **rules(rule="tile", value=[16, 16], **fields))
    assert [(row.operand, row.measured, row.limit) for row in rows] == expected


def test_free_leaves_out_a_contracted_dimension_of_the_tile_alone() -> None:
    """A linear layer's weight contracts its last dimension, a vector its only one, a convolution none of the two."""
    fields = {"rule": "tile", "value": [16, 16], "roles": ["compute"], "dims": "free"}
    layer = call("y", "torch.nn.functional.linear", ["x", "w"], tensor(16, 24))
    given = graph(placeholder("x", 2, 16, 20), placeholder("w", 24, 20), layer)
    assert [(row.operand, row.limit) for row in found(given, **rules(**fields))] == [("args[1]", "16x1")]
    given = graph(placeholder("x", 16, 20), placeholder("v", 20), call("y", "aten.mv.default", ["x", "v"], tensor(16)))
    assert [(row.operand, row.measured, row.limit) for row in found(given, **rules(**fields))] == [
        ("args[1]", "1x20", "16x1")
    ]
    node = call("c", "aten.convolution.default", ["x", "w"], tensor(1, 4, 8, 8))
    node.args.extend([None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1])
    given = graph(placeholder("x", 1, 3, 16, 8), placeholder("w", 4, 3, 16, 16), node)
    assert [(row.operand, row.limit) for row in found(given, **rules(**fields))] == [("args[0]", "16x16")]


@pytest.mark.parametrize(("mask", "shapes"), [
    ([True, True, True], [(2, 3, 8, 8), (4, 3, 3, 3), (4,)]), ([False, True, True], [(4, 3, 3, 3), (4,)]),
    ([False, True, False], [(4, 3, 3, 3)]),
])  # fmt: skip
def test_a_biases_gradient_is_no_result_of_a_product(mask: list[bool], shapes: list[tuple[int, ...]]) -> None:
    node = call("c", "aten.convolution_backward.default", ["g", "x", "w"], *(tensor(*shape) for shape in shapes))
    node.args.extend([[4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, mask])
    given = graph(placeholder("g", 2, 4, 6, 6), placeholder("x", 2, 3, 8, 8), placeholder("w", 4, 3, 3, 3), node)
    rows = found(given, **rules(rule="alignment", value=5, roles=["result"]))
    assert len(rows) == len(shapes) - mask[2]
