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
    operands of matrix products, attention and convolutions, at each node that reads them, and of a convolution in
    groups at the size of one group. A dimension of size 1 counts only under ``all``. A cost is that of padding the one
    dimension.
    """
    if rule.dims == "contraction":
        for found in contractions(graph, rule):
            if isinstance(found, Violation):
                yield found
            elif found[1].dimension is not None:
                yield from _dimension(found[0], found[1].dimension, rule, found[1].groups)
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


def _dimension(subject: Subject, dimension: int, rule: Rule, groups: int = 1) -> Iterator[Violation]:
    if subject.role not in (rule.roles or ()):
        return
    size, value = subject.tensor.shape[dimension], subject.sizes[dimension]
    if size == groups and rule.dims != "all":
        return
    item = ITEM_BYTES.get(subject.tensor.dtype) if rule.unit == "bytes" else 1
    where = f"dimension {dimension} of {subject.operand} {subject.tensor.shape}"
    limit = int(rule.value)
    if item is None:
        yield subject.violation(rule, measured=size, limit=limit, undecided=True,
                                message=f"{where}: the width of {subject.tensor.dtype} is not known",
                                suggestion="give the rule in elements")  # fmt: skip
        return
    # groups divide the size: a group's is a multiple where the whole is one of so many times the limit
    verdict = is_multiple(size, limit * groups, subject.graph.symbols, value, item=item)
    if value == groups and rule.dims != "all" and not verdict:  # a symbolic size: 1 does not count, but need not be 1
        verdict = None
    if verdict is None:
        known = "has no known value" if value is None else f"is {value} in this case, which fits, but need not be"
        yield subject.violation(
            rule, measured=size, limit=limit, undecided=True,
            message=f"{where} is {size}, which {known}, a multiple of {limit} {rule.unit}",
            suggestion=f"make it a multiple of {limit} by construction, e.g. pad the input")  # fmt: skip
    elif not verdict:
        yield _misaligned(subject, dimension, rule, value, item, groups)


def _misaligned(subject: Subject, dimension: int, rule: Rule, value: int | None, item: int, groups: int) -> Violation:
    limit, size = int(rule.value), subject.tensor.shape[dimension]
    where = f"dimension {dimension} of {subject.operand} {subject.tensor.shape}"
    if value is None:
        return subject.violation(
            rule,
            measured=size,
            limit=limit,
            message=f"{where} is {size}, no multiple of {limit} {rule.unit} for any value in its range",
            suggestion=f"make it a multiple of {limit} by construction, e.g. pad the input",
        )
    group = padded_group = value // groups
    while padded_group * item % limit:
        padded_group += 1
    padded = padded_group * groups
    nbytes = subject.nbytes
    cost = nbytes // value * (padded - value) if nbytes is not None else None
    shown = f"{size} ({value} in this case)" if isinstance(size, str) else str(value)
    shown += f", {group} in each of {groups} groups" if groups > 1 else ""
    each = f", {padded_group} in each of {groups} groups" if groups > 1 else ""
    return subject.violation(
        rule,
        measured=group * item if not isinstance(size, str) else f"{size} = {group * item}",
        limit=limit,
        cost=cost,
        share=None if not cost or not nbytes else cost / nbytes,
        part=f"{dimension}/{groups}" if groups > 1 else str(dimension),
        message=f"{where} is {shown}, not a multiple of {limit} {rule.unit}",
        suggestion=f"use {padded} (+{padded - value}) elements{each}, or let the compiler pad",
    )
