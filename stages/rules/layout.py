"""The layout rule: strides and storage offset of a tensor."""

from collections.abc import Iterator, Mapping, Sequence

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.records import ITEM_BYTES, Size
from inductor_debug.stages.graphs.symbolic_sizes import case_value, is_equal, is_multiple, product
from inductor_debug.stages.rules.judged import Judgement, Subject


def layout(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    """One judgement of a tensor whose strides or storage offset are not the layout's; the cost is a copy of it.

    ``contiguous`` concerns every tensor, ``channels_last`` those of rank 4 and 5. ``{stride: N, offset: M}`` asks for
    multiples, in ``unit``: of N every stride but those of 1, of M the storage offset. Strides of dimensions of size 1
    don't matter, nor those of empty tensors. A symbolic stride that fits in this case, but need not, is undecided.
    """
    rank = len(subject.tensor.shape)
    if 0 in subject.sizes or (rule.value == "channels_last" and rank not in (4, 5)):
        return
    if len(subject.tensor.stride) != rank:
        yield _undecided_layout(subject, rule, "has no strides")
    elif isinstance(rule.value, Mapping):
        yield from _multiples(subject, rule)
    else:
        yield from _dense(subject, rule, str(rule.value))


def _undecided_layout(subject: Subject, rule: Rule, why: str) -> Judgement:
    tensor = subject.tensor
    return Judgement(
        measured=tensor.stride,
        limit=rule.value if isinstance(rule.value, str) else dict(rule.value),
        undecided=True,
        message=f"{subject.operand} {tensor.shape}, strides {tensor.stride}, offset {tensor.storage_offset}: {why}",
        suggestion="check this tensor by hand, or copy it into the layout",
    )


def _dense(subject: Subject, rule: Rule, layout: str) -> Iterator[Judgement]:
    tensor, symbols, sizes = subject.tensor, subject.symbols, subject.sizes
    strides = [case_value(stride, None, symbols) for stride in tensor.stride]
    known = [size for size in sizes if size is not None]
    wanted = strides_of(known, layout) if len(known) == len(sizes) and None not in strides else []
    if any(size != 1 and got != want for size, got, want in zip(sizes, strides, wanted, strict=False)):
        yield Judgement(
            measured=strides,
            limit=f"{layout} {wanted}",
            cost=subject.nbytes,
            message=f"{subject.operand} {tensor.shape} has strides {strides}, {layout} would be {wanted}",
            suggestion=_relayout(layout),
        )
    elif not all(
        size == 1 or is_equal(got, want, symbols)
        for size, got, want in zip(tensor.shape, tensor.stride, strides_of(tensor.shape, layout), strict=True)
    ):
        yield _undecided_layout(subject, rule, f"{layout} here, as far as can be told, but need not be")
    offset = case_value(tensor.storage_offset, None, symbols)
    if offset:
        yield Judgement(
            measured=f"offset {offset}",
            limit="offset 0",
            cost=subject.nbytes,
            message=f"{subject.operand} {tensor.shape} starts {offset} elements into its storage",
            suggestion="clone the view, or slice later",
        )
    elif isinstance(tensor.storage_offset, str):
        yield _undecided_layout(subject, rule, "where it starts in its storage is not fixed")


def _multiples(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    tensor, symbols = subject.tensor, subject.symbols
    item = ITEM_BYTES.get(tensor.dtype) if rule.unit == "bytes" else 1
    if item is None:
        yield _undecided_layout(subject, rule, f"the width of {tensor.dtype} is not known; give the rule in elements")
        return
    shape, wanted, base = f"{subject.operand} {tensor.shape}", rule.value.get("stride"), rule.value.get("offset")
    here = [case_value(stride, None, symbols) for stride in tensor.stride]
    verdicts = [
        _fits(subject, dimension, value, is_multiple(stride, wanted or 1, symbols, value, item=item))
        for dimension, (stride, value) in enumerate(zip(tensor.stride, here, strict=True))
    ]
    wrong = [value * item for value, fits in zip(here, verdicts, strict=True) if fits is False and value is not None]
    if False in verdicts:
        yield Judgement(
            measured=wrong,
            limit=f"stride {wanted}",
            cost=subject.nbytes,
            message=f"{shape} has strides of {wrong} {rule.unit}, not multiples of {wanted}",
            suggestion="copy it into a padded buffer, or pad the dimension behind",
        )
    elif None in verdicts:
        yield _undecided_layout(subject, rule, f"strides need not be multiples of {wanted} {rule.unit}")
    offset = case_value(tensor.storage_offset, None, symbols)
    fits = is_multiple(tensor.storage_offset, base or 1, symbols, offset, item=item)
    if fits is None:
        yield _undecided_layout(subject, rule, f"its start need not be a multiple of {base} {rule.unit}")
    elif not fits:
        found = tensor.storage_offset if offset is None else offset * item
        yield Judgement(
            measured=f"offset {found}",
            limit=f"offset {base}",
            cost=subject.nbytes,
            message=f"{shape} starts {found} {rule.unit} into its storage, not a multiple of {base}",
            suggestion="clone the view, or slice at a multiple",
        )


def _fits(subject: Subject, dimension: int, stride: int | None, verdict: bool | None) -> bool | None:
    """``verdict``, but for a dimension of size 1 or a stride of 1, which may be anything where they are so for good."""
    if subject.tensor.shape[dimension] == 1 or subject.tensor.stride[dimension] == 1:
        return True
    return None if verdict is False and 1 in (subject.sizes[dimension], stride) else verdict


def _relayout(wanted: str) -> str:
    if wanted == "contiguous":
        return "call .contiguous() where the view is made, or avoid the transpose"
    return "convert the model and its input with .to(memory_format=torch.channels_last)"


def strides_of(sizes: Sequence[Size], wanted: str) -> list[Size]:
    """Strides in elements of a dense tensor: ``contiguous``, or ``channels_last`` (N, spatial…, C) for rank 4 and 5.

    Expressions where they depend on symbolic sizes.
    """
    order = list(range(len(sizes)))
    if wanted == "channels_last":
        order = [0, *order[2:], 1]
    strides: list[Size] = [0] * len(sizes)
    step: Size = 1
    for dimension in reversed(order):
        strides[dimension] = step
        size = sizes[dimension]
        step = product(step, max(size, 1) if isinstance(size, int) else f"Max(1, {size})")
    return strides
