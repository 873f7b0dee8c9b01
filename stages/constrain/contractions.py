"""What matrix products, convolutions and attention contract, and which node makes an operand. Free of torch."""

from collections.abc import Mapping

from stages.constrain.names import Operation
from stages.graphs import NodeRecord

CONTRACTIONS: dict[str, tuple[tuple[int, str, int], ...]] = {
    "mm": ((0, "self", -1), (1, "mat2", -2)),
    "bmm": ((0, "self", -1), (1, "mat2", -2)),
    "_int_mm": ((0, "self", -1), (1, "mat2", -2)),
    "_scaled_mm": ((0, "self", -1), (1, "mat2", -2)),
    "addmm": ((1, "mat1", -1), (2, "mat2", -2)),
    "baddbmm": ((1, "batch1", -1), (2, "batch2", -2)),
    "addbmm": ((1, "batch1", -1), (2, "batch2", -2)),
    "mv": ((0, "self", -1), (1, "vec", -1)),
    "addmv": ((1, "mat", -1), (2, "vec", -1)),
    "dot": ((0, "self", -1), (1, "tensor", -1)),
    "vdot": ((0, "self", -1), (1, "other", -1)),
    "matmul": ((0, "input", -1), (1, "other", -2)),
    "linear": ((0, "input", -1), (1, "weight", -1)),
    "convolution": ((0, "input", 1), (1, "weight", 1)),
    "convolution_backward": ((0, "grad_output", 1), (2, "weight", 0)),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), ((0, "input", 1), (1, "weight", 1))),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu",
         "_scaled_dot_product_fused_attention_overrideable"),
        ((0, "query", -1), (1, "key", -1), (2, "value", -2)),
    ),
}  # fmt: skip
"""Operation → the operands it contracts: position, keyword, dimension. Convolutions contract over input channels (of a
group); their backward, for the input's gradient, over output channels (whose weight dimension is 0)."""

UNREADABLE = ("einsum", "tensordot", "bilinear", "multi_dot", "linalg_multi_dot", "chain_matmul", "inner",
              "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # fmt: skip
"""Operations that contract dimensions which their positions don't tell."""


def contracted(node: NodeRecord) -> tuple[tuple[int, str, int], ...]:
    """The operands that a node contracts: position, keyword, dimension; empty for another operation."""
    short = Operation.of(node).short
    name = next((name for name in CONTRACTIONS if name in short), None)
    return CONTRACTIONS.get(name or "", ())


def operand(nodes: Mapping[str, NodeRecord], node: NodeRecord, position: int, keyword: str) -> NodeRecord | None:
    """The node that makes an operand, given by position or by keyword; None for what no node makes.

    Args:
        nodes: those of the graph, by name.
    """
    value = node.argument(position, keyword)
    return nodes.get(value.get("node", "")) if isinstance(value, dict) else None
