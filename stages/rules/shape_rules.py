"""The rules about shapes: rank, sizes, tiles, symbolic sizes."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.records import GraphRecord, Size
from inductor_debug.stages.graphs.symbolic_sizes import bounds, is_multiple, names_in
from inductor_debug.stages.rules.alignment import dimensions
from inductor_debug.stages.rules.checked_tensors import MARK
from inductor_debug.stages.rules.judged import Judgement, Subject
from inductor_debug.stages.rules.violation import Violation, row


def rank(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    """One judgement of a tensor of more than ``rule.value`` dimensions. The cost is the tensor's bytes."""
    limit = int(rule.value)
    found = len(subject.tensor.shape)
    if found > limit:
        yield Judgement(
            measured=found,
            limit=limit,
            cost=subject.nbytes,
            message=f"{subject.where} has {found} dimensions, more than {limit}",
            suggestion=f"fold dimensions with reshape, so that {limit} are left",
        )


def size(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    """One judgement for each dimension whose size is not within ``rule.value``, a largest size or ``{min, max}``.

    The cost is the tensor's bytes, with the effect ``pad`` what padding the dimension to the smallest size adds.
    A symbolic size is decided by its range, else as this case had it. One that fits here, but need not, is undecided.
    So is one without a value whose range goes beyond a limit.
    """
    limits = rule.value if isinstance(rule.value, Mapping) else {"max": int(rule.value)}
    least, most = limits.get("min", 0), limits.get("max")
    limit = f"{least} or more" if most is None else f"{least} to {most}" if least else f"at most {most}"
    grown = Fraction(1)  # by padding the dimensions before
    ranges, sizes = subject.bounds, subject.sizes
    for dimension in dimensions(rule.dims or "all", len(subject.tensor.shape)):
        (low, high), value = ranges[dimension], sizes[dimension]
        if low is not None and low >= least and (most is None or (high is not None and high <= most)):
            continue
        shown = subject.tensor.shape[dimension]
        where = f"dimension {dimension} of {subject.where}"
        ends = (low, high) if value is None else (value, value)
        small = ends[1] is not None and ends[1] < least
        if small or (most is not None and ends[0] is not None and ends[0] > most):
            cost, share = subject.nbytes, None
            if rule.effect == "pad":
                more = Fraction(least - value, value) * grown if small and value else None
                share = None if more is None else float(more)
                cost = None if cost is None or more is None else int(cost * more)
                grown *= Fraction(least, value) if small and value else 1
            yield Judgement(
                measured=shown if isinstance(shown, int) or value is None else f"{shown} = {value}",
                limit=limit,
                cost=cost,
                share=share,
                part=str(dimension) if rule.effect == "pad" else "",
                message=f"{where} is {shown if value is None else value}, {limit} being allowed",
                suggestion="pad the dimension, or join tensors along it"
                if small
                else "split the tensor along this dimension",
            )
        else:
            here = "has no known value" if value is None else f"is {value} in this case, which fits, but need not be"
            yield Judgement(
                measured=shown,
                limit=limit,
                undecided=True,
                message=f"{where} is {shown}, which {here}: it may be {_range(low, high)}, {limit} being allowed",
                suggestion=_bounded(shown, (low, high), (least, most)),
            )


def _range(low: int | None, high: int | None) -> str:
    if low is None or high is None:
        return "any number" if low is None and high is None else f"{low} or more" if high is None else f"{high} or less"
    return f"{low} to {high}"


def _bounded(size: Size, ends: tuple[int | None, int | None], limits: tuple[int, int | None]) -> str:
    """What to do about a size whose range reaches over a limit, by the end that does."""
    (low, high), (least, most) = ends, limits
    low = max(least, low or 0, 1)
    high = high if most is None else most if high is None else min(high, most)
    call = MARK.format(low, "N" if high is None else high)
    if str(size).isidentifier():
        return f"bound the size to {_range(low, high)}: {call}"
    return f"bound the symbols of {size}, so that it is {_range(low, high)}: {MARK.format('M', 'N')}"


def tile(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    """One judgement of a tensor that its tiles over the last dimensions do not cover exactly.

    A tensor of fewer dimensions than the tile is laid out with leading dimensions of size 1; one without dimensions is
    left out. Under ``dims`` free the tile is 1 along a dimension that is contracted. The cost is what padding to whole
    tiles adds.
    """
    rank = len(subject.tensor.shape)
    if not rank:
        return
    tiles, contracted = [int(item) for item in rule.value], subject.contracted
    if rule.dims == "free" and contracted is not None and contracted >= rank - len(tiles):
        tiles[contracted - rank] = 1
    ones = [1] * len(tiles)
    last, here = [*ones, *subject.tensor.shape][-len(tiles) :], [*ones, *subject.sizes][-len(tiles) :]
    verdicts = [
        is_multiple(item, each, subject.symbols, value) for item, each, value in zip(last, tiles, here, strict=True)
    ]
    if 0 in subject.tensor.shape or all(verdicts):
        return
    limit = "x".join(map(str, tiles))
    if False not in verdicts or 0 in here:
        known = "is not known" if None in here else "holds in this case, but need not"
        yield Judgement(
            measured=subject.tensor.shape,
            limit=limit,
            undecided=True,
            message=f"{subject.where}: that tiles of {limit} cover it {known}",
            suggestion="make the sizes multiples by construction, e.g. pad the input",
        )
        return
    yield _uncovered(subject, tiles, here)


def _uncovered(subject: Subject, tiles: list[int], here: list[int | None]) -> Judgement:
    padded = [None if item is None else -(-item // each) * each for item, each in zip(here, tiles, strict=True)]
    limit, nbytes, grown = "x".join(map(str, tiles)), subject.nbytes, None
    if None not in here:
        grown = math.prod(filter(None, padded)) / math.prod(filter(None, here))
    return Judgement(
        measured="x".join("?" if item is None else str(item) for item in here),
        limit=limit,
        cost=None if nbytes is None or grown is None else round(nbytes * (grown - 1)),
        share=None if grown is None else grown - 1,
        message=f"{subject.where} is padded from {here} to {padded} in its last dimensions, tiles being {limit}",
        suggestion=f"use {padded}, or fold a small dimension into another",
    )


def dynamic_shape(graph: GraphRecord, rule: Rule) -> Iterator[Violation]:
    """One row for each symbolic size, where it first appears: an input's, or one that the data decides. It concerns
    every operation that reads or makes a tensor of such a size.

    ``static`` allows none; ``bounded`` those whose range has a largest value.
    """
    seen: set[str] = set()
    carriers: dict[str, list[str]] | None = None
    for node in graph.nodes:
        for index, tensor in enumerate(node.outputs):
            for dimension, found in enumerate(tensor.shape):
                if not isinstance(found, str) or found in seen:
                    continue
                seen.add(found)
                known = graph.symbols.get(found)
                if known is None and node.op != "placeholder":
                    continue  # made of symbols that have a row of their own
                _, most = bounds(found, graph.symbols)
                if rule.value == "bounded" and most is not None:
                    continue
                carriers = _carriers(graph, bounded=rule.value == "bounded") if carriers is None else carriers
                also = dict.fromkeys(name for symbol in sorted(names_in(found)) for name in carriers.get(symbol, ()))
                operand = node.role or (f"output[{index}]" if len(node.outputs) > 1 else "output")
                ends = "has no largest value" if most is None else f"is at most {most}"
                yield row(
                    graph,
                    node,
                    rule,
                    operand=operand,
                    measured=found,
                    limit=rule.value,
                    message=f"dimension {dimension} of {operand} {tensor.shape} is symbolic: {found} {ends}",
                    suggestion="compile with dynamic=False, or pad to fixed sizes (buckets)"
                    if rule.value == "static"
                    else f"give the dimension a largest value: {MARK.format(1, 'N')}",
                ).but(also=tuple(also))


def _carriers(graph: GraphRecord, *, bounded: bool) -> dict[str, list[str]]:
    """Symbol → the calls that read or make a tensor of a size that depends on it; ``bounded`` leaves out sizes that
    have a largest value."""
    own: dict[str, set[str]] = {}
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        sizes = {size for tensor in node.outputs for size in tensor.shape if isinstance(size, str)}
        counting = (size for size in sizes if not bounded or bounds(size, graph.symbols)[1] is None)
        own[node.name] = set().union(*map(names_in, counting))
        if node.is_call:
            for symbol in own[node.name].union(*(own.get(name, ()) for name in node.inputs)):
                found.setdefault(symbol, []).append(node.name)
    return found
