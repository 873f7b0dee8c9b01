"""What matrix products, convolutions and attention contract, and which node makes an operand."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.accelerators.rule_kinds import PRODUCT_ROLES
from inductor_debug.stages.graphs.operation_names import Operation
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord
from inductor_debug.stages.rules.checked_tensors import CheckedTensor, chosen, made_at, read_at, selects
from inductor_debug.stages.rules.unread import Unread

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
    "conv1d": ((0, "input", -2), (1, "weight", 1)),
    "conv2d": ((0, "input", -3), (1, "weight", 1)),
    "conv3d": ((0, "input", -4), (1, "weight", 1)),
    "convolution": ((0, "input", 1), (1, "weight", 1)),
    "_convolution": ((0, "input", 1), (1, "weight", 1)),
    "convolution_backward": ((0, "grad_output", 1), (2, "weight", 0)),
    **dict.fromkeys(
        ("scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu",
         "_scaled_dot_product_fused_attention_overrideable"),
        ((0, "query", -1), (1, "key", -1), (2, "value", -2)),
    ),
}  # fmt: skip
"""Operation → the operands it contracts: position, keyword, dimension. Convolutions contract over input channels of a
group; their backward, for the input's gradient, over output channels of a group (whose weight dimension is 0)."""

TRANSPOSED = {"convolution": 6, "_convolution": 6, "convolution_backward": 7}
"""Operation → position of its argument ``transposed``, which turns the first two dimensions of the weight."""

GROUPS = {"conv1d": 6, "conv2d": 6, "conv3d": 6, "convolution": 8, "_convolution": 8, "convolution_backward": 9}
"""Operation → position of its argument ``groups``."""
OUTPUT_MASK = 10
"""Position of convolution_backward's argument that tells which gradients are made: of input, weight and bias."""

_ATTENTION = ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention",
              "fused_attention_overrideable")  # fmt: skip
UNREADABLE = frozenset((
    "einsum", "tensordot", "bilinear", "_trilinear", "multi_dot", "linalg_multi_dot", "chain_matmul", "inner", "vecdot",
    "linalg_vecdot", "cdist", "_cdist_forward", "corrcoef", "cov", "matrix_power", "linalg_matrix_power",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "conv_tbc", "_conv_depthwise2d", "conv_depthwise3d",
    "_slow_conv2d_forward", "slow_conv3d", "cudnn_convolution", "mkldnn_convolution", "miopen_convolution",
    "_addmm_activation", "_grouped_mm", "_scaled_grouped_mm", "_weight_int4pack_mm", "_weight_int8pack_mm",
    "_sparse_mm", "_sparse_addmm", "mkldnn_linear",
    "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn",
    "miopen_rnn_backward", "multi_head_attention_forward", "_native_multi_head_attention",
    "_transformer_encoder_layer_fwd", "_scaled_dot_product_attention_math", "flex_attention", "flex_attention_backward",
    *(f"_scaled_dot_product_{name}_backward" for name in _ATTENTION),
    "triton_kernel_wrapper_functional", "triton_kernel_wrapper_mutation",
))  # fmt: skip
"""Operations that contract dimensions, or may, of which their arguments' positions don't tell."""


@dataclass(frozen=True)
class Operand:
    """What an operation multiplies and adds up.

    Attributes:
        position, keyword: of the argument.
        dimension: that is contracted; None where several are together (of a weight's gradient batch and positions),
            so that there is none to align.
        groups: equal parts of that dimension which are contracted each by itself.
    """

    position: int
    keyword: str
    dimension: int | None
    groups: int = 1


def contracted(node: NodeRecord) -> list[Operand]:
    """The operands that a node contracts; none for another operation.

    Channels in groups: the input has a group's size times ``groups`` of them, and so has a weight whose first dimension
    is contracted. A weight whose second dimension is contracted has a group's size.

    ====================  ===============================  ==============================
    of                    normal                           transposed
    ====================  ===============================  ==============================
    the forward pass      input 1 in groups, weight 1      input 1, weight 0, in groups
    the input's gradient  grad_output 1, weight 0,         grad_output 1 in groups,
                          in groups                        weight 1
    the weight's          grad_output and input, over batch and positions together
    ====================  ===============================  ==============================
    """
    short = Operation.of(node).short
    name = next((name for name in CONTRACTIONS if name in short), "")
    turned = name in TRANSPOSED and node.argument(TRANSPOSED[name], "transposed") is True
    given = node.argument(GROUPS[name], "groups") if name in GROUPS else 1
    groups = given if isinstance(given, int) and given > 0 else 1
    found = []
    for at, keyword, dimension in CONTRACTIONS.get(name, ()):
        if keyword == "weight" and name in GROUPS:
            dimension = 1 - dimension if turned else dimension
            found.append(Operand(at, keyword, dimension, groups if dimension == 0 else 1))
        else:
            found.append(Operand(at, keyword, dimension, groups))
    return _gradients(node, found) if name == "convolution_backward" else found


def _gradients(node: NodeRecord, of_input: list[Operand]) -> list[Operand]:
    """What ``convolution_backward`` contracts for those of input and weight whose gradients are made."""
    mask = node.argument(OUTPUT_MASK, "output_mask")
    input_too, weight_too = (mask[0], mask[1]) if isinstance(mask, list) and len(mask) > 1 else (True, True)
    found = of_input if input_too else []
    if weight_too:
        found = [*found, *([] if input_too else [Operand(0, "grad_output", None)]), Operand(1, "input", None)]
    return found


def contractions(graph: GraphRecord, rule: Rule) -> Iterator[CheckedTensor | Unread]:
    """What the operations of ``rule`` contract, at each node that reads it.

    Yields:
        A tensor, with the dimension that is contracted and its groups; a node of which that can't be read.
    """
    for node in graph.nodes:
        yield from _contractions_at(graph, node, rule)


def looked_at(graph: GraphRecord, rule: Rule, *, forward_checked: bool) -> Iterator[CheckedTensor | Unread]:
    """The tensors that ``rule`` looks at, those of products under the roles ``compute`` and ``result`` among them.

    Yields:
        A tensor, with the dimension that is contracted where it is read; an operation of which that can't be told.
    """
    roles = set(rule.roles or ())
    if not roles or roles - set(PRODUCT_ROLES):
        yield from chosen(graph, rule, forward_checked=forward_checked)
    for node in graph.nodes if roles & set(PRODUCT_ROLES) else ():
        found = list(_contractions_at(graph, node, rule))
        yield from (each for each in found if isinstance(each, Unread) or "compute" in roles)
        for index in _results(node) if found and "result" in roles else ():
            yield made_at(graph, node, index)


def _results(node: NodeRecord) -> range:
    """Which outputs of a node are sums of products: not statistics beside them, and not a bias's gradient."""
    if "convolution_backward" not in Operation.of(node).short:
        return range(min(1, len(node.outputs)))
    mask = node.argument(OUTPUT_MASK, "output_mask")
    biased = mask[2] if isinstance(mask, list) and len(mask) > 2 else True
    return range(len(node.outputs) - bool(biased))


def _contractions_at(graph: GraphRecord, node: NodeRecord, rule: Rule) -> Iterator[CheckedTensor | Unread]:
    if node.op not in ("call_function", "call_method") or not selects(rule.operations or (), node):
        return
    if Operation.of(node).short & UNREADABLE:
        message = f"what {node.target} contracts can't be read from its arguments: not established"
        suggestion = "check the aten graph, or write it as a matrix product"
        yield Unread(graph, node, message, suggestion, measured=node.target)
        return
    for read in contracted(node):
        yield _contraction(graph, node, read)


def _contraction(graph: GraphRecord, node: NodeRecord, read: Operand) -> CheckedTensor | Unread:
    position, dimension = read.position, read.dimension
    producer = operand(graph, node, position, read.keyword)
    tensor = producer.outputs[0] if producer is not None and producer.outputs else None
    rank = 0 if tensor is None else len(tensor.shape)
    if dimension == -2 and rank == 1:  # matmul with a vector contracts its only dimension
        dimension = -1
    if producer is None or tensor is None or not (dimension is None or -rank <= dimension < rank):
        message = f"operand {position} of {node.target} has no recorded shape that can be contracted"
        return Unread(graph, node, message, "check this operation by hand", operand=f"args[{position}]")
    at = None if dimension is None else dimension % rank
    return replace(read_at(graph, node, f"args[{position}]", producer), contracted=at, groups=read.groups)


def operand(graph: GraphRecord, node: NodeRecord, position: int, keyword: str) -> NodeRecord | None:
    """The node that makes an operand, given by position or by keyword; None for what no node makes.

    Args:
        graph: the node's.
        node: the node that reads the operand.
        position, keyword: of the argument.
    """
    value = node.argument(position, keyword)
    if value is None and keyword == "self":  # as torch's functions call what aten calls self
        value = node.kwargs.get("input")
    return graph.by_name.get(value.get("node", "")) if isinstance(value, dict) else None
