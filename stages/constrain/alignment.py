"""The alignment rule: which dimensions, of which tensors, are a multiple of the limit. Free of torch."""

from collections.abc import Iterator

from stages.constrain.config import Rule
from stages.constrain.contractions import contractions
from stages.constrain.sizes import is_multiple
from stages.constrain.subjects import Subject, chosen
from stages.constrain.violations import Violation
from stages.graphs import ITEM_BYTES, GraphRecord


def alignment(graph: GraphRecord, rule: Rule, *, forward_checked: bool = False) -> Iterator[Violation]:
    """One row for each dimension that is not a multiple of ``rule.value``.

    ``dims`` last, last2, first and all look at each tensor once, at the node that makes it; contraction looks at
    operands of matrix products, attention and convolutions, at each node that reads them. A dimension of size 1 counts
    only under ``all``. A cost is that of padding the one dimension.
    """
    if rule.dims == "contraction":
        for found in contractions(graph, rule):
            yield from [found] if isinstance(found, Violation) else _dimension(*found, rule)
        return
    for subject in chosen(graph, rule, forward_checked=forward_checked):
        rank = len(subject.tensor.shape)
        for dimension in dimensions(rule.dims or "last", rank):
            yield from _dimension(subject, dimension, rule)


def dimensions(dims: str, rank: int) -> range:
    """Indices of the dimensions that ``dims`` names in a tensor of ``rank``."""
    if dims == "first":
        return range(min(1, rank))
    count = {"last": 1, "last2": 2, "all": rank}[dims]
    return range(max(0, rank - count), rank)


def _dimension(subject: Subject, dimension: int, rule: Rule) -> Iterator[Violation]:
    if subject.role not in (rule.roles or ()):
        return
    size, value = subject.tensor.shape[dimension], subject.sizes[dimension]
    if size == 1 and rule.dims != "all":
        return
    item = ITEM_BYTES.get(subject.tensor.dtype) if rule.unit == "bytes" else 1
    where = f"dimension {dimension} of {subject.operand} {subject.tensor.shape}"
    limit = int(rule.value)
    if item is None:
        yield subject.violation(rule, measured=size, limit=limit, undecided=True,
                                message=f"{where}: the width of {subject.tensor.dtype} is not known",
                                suggestion="give the rule in elements")  # fmt: skip
        return
    verdict = is_multiple(size, limit, subject.graph.symbols, value, item=item)
    if value == 1 and rule.dims != "all" and not verdict:  # a symbolic size: 1 does not count, but it need not be 1
        verdict = None
    if verdict is None:
        known = "has no known value" if value is None else f"is {value} in this case, which fits, but need not be"
        yield subject.violation(
            rule, measured=size, limit=limit, undecided=True,
            message=f"{where} is {size}, which {known}, a multiple of {limit} {rule.unit}",
            suggestion=f"make it a multiple of {limit} by construction, e.g. pad the input")  # fmt: skip
    elif not verdict:
        yield _misaligned(subject, dimension, rule, value, item)


def _misaligned(subject: Subject, dimension: int, rule: Rule, value: int | None, item: int) -> Violation:
    limit, size = int(rule.value), subject.tensor.shape[dimension]
    if value is None:
        return subject.violation(
            rule,
            measured=size,
            limit=limit,
            message=f"dimension {dimension} of {subject.operand} {subject.tensor.shape} is {size}, no multiple "
            f"of {limit} {rule.unit} for any value in its range",
            suggestion=f"make it a multiple of {limit} by construction, e.g. pad the input",
        )
    padded = value
    while padded * item % limit:
        padded += 1
    nbytes = subject.nbytes
    cost = nbytes // value * (padded - value) if nbytes is not None else None
    shown = f"{size} ({value} in this case)" if isinstance(size, str) else str(value)
    return subject.violation(
        rule,
        measured=value * item if not isinstance(size, str) else f"{size} = {value * item}",
        limit=limit,
        cost=cost,
        share=None if not cost or not nbytes else cost / nbytes,
        part=str(dimension),
        message=f"dimension {dimension} of {subject.operand} {subject.tensor.shape} is {shown}, not a multiple of "
        f"{limit} {rule.unit}",
        suggestion=f"use {padded} (+{padded - value}) elements, or let the compiler pad",
    )
