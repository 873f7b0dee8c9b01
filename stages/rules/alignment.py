"""The alignment rule: which dimensions, of which tensors, are a multiple of the limit."""

import math
from collections.abc import Iterator
from fractions import Fraction

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.records import ITEM_BYTES, GraphRecord
from inductor_debug.stages.graphs.symbolic_sizes import is_multiple
from inductor_debug.stages.rules.checked_tensors import CheckedTensor
from inductor_debug.stages.rules.contractions import contractions, looked_at
from inductor_debug.stages.rules.judged import Judgement, Subject
from inductor_debug.stages.rules.unread import Unread


def aligned(graph: GraphRecord, rule: Rule, *, forward_checked: bool) -> Iterator[CheckedTensor | Unread]:
    """What the rule looks at.

    ``dims`` last, last2, first and all look at each tensor once, at the node that makes it. ``contraction`` looks at
    operands of matrix products, attention and convolutions, at each node that reads them.
    """
    if rule.dims != "contraction":
        yield from looked_at(graph, rule, forward_checked=forward_checked)
        return
    roles = set(rule.roles or ())
    for each in contractions(graph, rule):
        if isinstance(each, Unread) or (each.contracted is not None and {each.role, "compute"} & roles):
            yield each


def alignment(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    """One judgement for each dimension that is not a multiple of ``rule.value``.

    Under ``contraction`` that is the contracted one, of a convolution in groups the size of one group. A dimension of
    size 1 counts only under ``all``. A cost is that of padding the one dimension, after those of the tensor that stand
    before it.
    """
    if rule.dims == "contraction":
        assert subject.contracted is not None
        yield from _dimension(subject, subject.contracted, rule, subject.groups)
        return
    grown: Fraction | int = 1
    named = dimensions(rule.dims or "last", len(subject.tensor.shape))
    for dimension in named:
        yield from _dimension(subject, dimension, rule, grown=grown)
        if dimension != named[-1]:
            grown *= _growth(subject, dimension, rule)


def dimensions(dims: str, rank: int) -> range:
    """Indices of the dimensions that ``dims`` names in a tensor of ``rank``."""
    if dims == "first":
        return range(min(1, rank))
    count = {"last": 1, "last2": 2, "all": rank}[dims]
    return range(max(0, rank - count), rank)


def _growth(subject: Subject, dimension: int, rule: Rule) -> Fraction | int:
    """How many times as large padding a dimension makes the tensor."""
    size, value = subject.tensor.shape[dimension], subject.sizes[dimension]
    item = ITEM_BYTES.get(subject.tensor.dtype) if rule.unit == "bytes" else 1
    if not value or item is None or (size == 1 and rule.dims != "all"):
        return 1
    return Fraction(_padded(value, item, int(rule.value)), value)


def _padded(value: int, item: int, limit: int) -> int:
    """The least size from ``value`` on that is a multiple of ``limit``, which is in the unit of ``item``."""
    step = limit // math.gcd(limit, item)
    return -(-value // step) * step


def _dimension(
    subject: Subject, dimension: int, rule: Rule, groups: int = 1, grown: Fraction | int = 1
) -> Iterator[Judgement]:
    size, value = subject.tensor.shape[dimension], subject.sizes[dimension]
    if size == groups and rule.dims != "all":
        return
    item = ITEM_BYTES.get(subject.tensor.dtype) if rule.unit == "bytes" else 1
    limit = int(rule.value)
    if item is None:
        yield Judgement(
            measured=size, limit=limit, undecided=True,
            message=f"{_where(subject, dimension)}: the width of {subject.tensor.dtype} is not known",
            suggestion="give the rule in elements")  # fmt: skip
        return
    # groups divide the size: a group's is a multiple where the whole is one of so many times the limit
    verdict = is_multiple(size, limit * groups, subject.symbols, value, item=item)
    if value == groups and rule.dims != "all" and not verdict:  # a symbolic size: 1 does not count, but need not be 1
        verdict = None
    if verdict is None:
        told = f"{size}, which has no known value" if value is None else f"{size}, {value} in this case"
        yield Judgement(
            measured=size, limit=limit, undecided=True,
            message=f"{_where(subject, dimension)} is {told}: it need not be a multiple of {limit} {rule.unit}",
            suggestion=f"make it a multiple of {limit} by construction, e.g. pad the input")  # fmt: skip
    elif not verdict:
        yield _misaligned(subject, dimension, rule, value, item, groups, grown)


def _where(subject: Subject, dimension: int) -> str:
    return f"dimension {dimension} of {subject.operand} {subject.tensor.shape}"


def _misaligned(
    subject: Subject, dimension: int, rule: Rule, value: int | None, item: int, groups: int, grown: Fraction | int
) -> Judgement:
    limit, size, where = int(rule.value), subject.tensor.shape[dimension], _where(subject, dimension)
    if value is None:
        return Judgement(
            measured=size,
            limit=limit,
            message=f"{where} is {size}, no multiple of {limit} {rule.unit} for any value in its range",
            suggestion=f"make it a multiple of {limit} by construction, e.g. pad the input",
        )
    group = value // groups
    padded_group = _padded(group, item, limit)
    padded = padded_group * groups
    nbytes = subject.nbytes
    cost = int(nbytes // value * (padded - value) * grown) if nbytes is not None else None
    shown = f"{size} ({value} in this case)" if isinstance(size, str) else str(value)
    shown += f", {group} in each of {groups} groups" if groups > 1 else ""
    shown += f" elements ({group * item} bytes)" if rule.unit == "bytes" else ""
    each = f", {padded_group} in each of {groups} groups" if groups > 1 else ""
    return Judgement(
        measured=group * item if not isinstance(size, str) else f"{size} = {group * item}",
        limit=limit,
        cost=cost,
        share=None if not cost or not nbytes else cost / nbytes,
        part=f"{dimension}/{groups}" if groups > 1 else str(dimension),
        message=f"{where} is {shown}, not a multiple of {limit} {rule.unit}",
        suggestion=f"pad it from {value} to {padded} elements{each}, or let the compiler pad it",
    )
