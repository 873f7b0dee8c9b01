"""The rules about one tensor at a time: dtype, layout, memory. Free of torch."""

from collections.abc import Iterator, Sequence

from stages.constrain.config import Rule
from stages.constrain.sizes import case_value
from stages.constrain.subjects import Subject, tensors
from stages.constrain.violations import Violation
from stages.graphs import GraphRecord

NARROWER = {
    "float64": ("float32", "bfloat16", "float16"), "float32": ("bfloat16", "float16"), "float16": ("float32",),
    "bfloat16": ("float32", "float16"), "int64": ("int32",), "int32": ("int64",), "int16": ("int32",),
    "int8": ("int32",), "uint8": ("int32",), "bool": ("uint8", "int8", "int32"), "complex128": ("complex64",),
}  # fmt: skip
"""dtype → what to try instead, best first."""


def dtype(graph: GraphRecord, rule: Rule, *, forward_checked: bool = False) -> Iterator[Violation]:
    """One row for each tensor whose dtype is not in ``rule.value``. The cost is the tensor's bytes."""
    allowed = [str(item).removeprefix("torch.") for item in rule.value]
    for subject in tensors(graph, forward_checked=forward_checked):
        found = subject.tensor.dtype
        if found in allowed:
            continue
        instead = [other for other in NARROWER.get(found, ()) if other in allowed] or allowed
        yield subject.violation(
            rule, measured=found, limit=" ".join(allowed), cost=subject.nbytes,
            message=f"{subject.operand} {subject.tensor.shape} is {found}, which is not supported",
            suggestion=f"use {instead[0]}",
        )  # fmt: skip


def memory_tensor(graph: GraphRecord, rule: Rule, *, forward_checked: bool = False) -> Iterator[Violation]:
    """One row for each tensor of more than ``rule.value`` bytes in this case. Views allocate nothing and are left out.

    A symbolic size is taken as this case had it; without a hint the row is undecided.
    """
    limit = int(rule.value)
    for subject in tensors(graph, forward_checked=forward_checked):
        nbytes = subject.nbytes
        if subject.node.aliases or (nbytes is not None and nbytes <= limit):
            continue
        where = f"{subject.operand} {subject.tensor.shape} {subject.tensor.dtype}"
        if nbytes is None:
            yield subject.violation(rule, measured=subject.tensor.shape, limit=limit, undecided=True,
                                    message=f"{where}: its size in bytes is not known",
                                    suggestion="give the size a bound, or check it by hand")  # fmt: skip
        else:
            yield subject.violation(rule, measured=nbytes, limit=limit, cost=nbytes,
                                    message=f"{where} takes {nbytes:,} bytes, more than {limit:,}",
                                    suggestion="split the tensor, lower the batch or use a narrower dtype")  # fmt: skip


def layout(graph: GraphRecord, rule: Rule, *, forward_checked: bool = False) -> Iterator[Violation]:
    """One row for each tensor whose strides or storage offset are not the layout's; the cost is a copy of it.

    ``contiguous`` concerns every tensor; ``channels_last`` those of rank 4 and 5. Strides of dimensions of size 1
    don't matter, nor those of empty tensors. A symbolic stride is taken as this case had it.
    """
    for subject in tensors(graph, forward_checked=forward_checked):
        rank = len(subject.tensor.shape)
        if rule.value == "channels_last" and rank not in (4, 5):
            continue
        yield from _layout(subject, rule)


def _layout(subject: Subject, rule: Rule) -> Iterator[Violation]:
    tensor, symbols = subject.tensor, subject.graph.symbols
    sizes = subject.sizes
    strides = [case_value(stride, None, symbols) for stride in tensor.stride]
    offset = case_value(tensor.storage_offset, None, symbols)
    if 0 in sizes:
        return
    if None in sizes or None in strides or offset is None or len(strides) != len(sizes):
        yield subject.violation(rule, measured=tensor.stride, limit=rule.value, undecided=True,
                                message=f"{subject.operand} {tensor.shape}: strides {tensor.stride} and offset "
                                f"{tensor.storage_offset} can't be evaluated",
                                suggestion="check this tensor by hand")  # fmt: skip
        return
    concrete = [size for size in sizes if size is not None]
    wanted = strides_of(concrete, str(rule.value))
    wrong = any(size != 1 and got != want for size, got, want in zip(concrete, strides, wanted, strict=True))
    if wrong:
        yield subject.violation(
            rule, measured=strides, limit=f"{rule.value} {wanted}", cost=subject.nbytes,
            message=f"{subject.operand} {tensor.shape} has strides {strides}, {rule.value} would be {wanted}",
            suggestion=_relayout(str(rule.value)))  # fmt: skip
    if offset:
        yield subject.violation(
            rule, measured=f"offset {offset}", limit="offset 0", cost=subject.nbytes,
            message=f"{subject.operand} {tensor.shape} starts {offset} elements into its storage",
            suggestion="clone the view, or slice later")  # fmt: skip


def _relayout(wanted: str) -> str:
    if wanted == "contiguous":
        return "call .contiguous() where the view is made, or avoid the transpose"
    return "convert the model and its input with .to(memory_format=torch.channels_last)"


def strides_of(sizes: Sequence[int], wanted: str) -> list[int]:
    """Strides in elements of a dense tensor: ``contiguous``, or ``channels_last`` (N, spatial…, C) for rank 4 and 5."""
    order = list(range(len(sizes)))
    if wanted == "channels_last":
        order = [0, *order[2:], 1]
    strides, step = [0] * len(sizes), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= max(sizes[dimension], 1)
    return strides
