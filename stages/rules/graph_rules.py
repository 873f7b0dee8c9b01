"""The rules about a whole graph: peak memory, and a user's own callable."""

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from numbers import Integral, Real
from types import NoneType
from typing import Any

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.liveness import peak_live
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.checked_tensors import BOUND, identity, operands_of, selects
from inductor_debug.stages.rules.judged import Judgement, storage_bounds
from inductor_debug.stages.rules.violation import CustomFinding, Violation, row

FINDING = tuple(field.name for field in fields(CustomFinding))
"""Keys of what a custom rule yields; ``node`` and ``message`` are required."""

_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("node", "operand", "message", "suggestion"), ((str,), "text")),
    "cost_bytes": ((Integral, NoneType), "a whole number of bytes, 0 or more, or None"),
    "cost_share": ((Real, NoneType), "a number, 0 or more, or None"),
    "undecided": ((bool,), "True or False"),
}
"""What some keys hold."""


@dataclass(frozen=True, eq=False)
class Peak:
    """The most bytes that are alive at once in a graph, each measured when it is first asked for.

    Every one is bytes, None where they are not known, and the node at which they are reached.
    """

    graph: GraphRecord

    @functools.cached_property
    def here(self) -> tuple[int | None, str]:
        """In this case."""
        return peak_live(self.graph)

    @functools.cached_property
    def least(self) -> tuple[int | None, str]:
        """At least, over the symbols' ranges."""
        return peak_live(self.graph, lambda tensor: storage_bounds(tensor, self.graph.symbols)[0])

    @functools.cached_property
    def most(self) -> tuple[int | None, str]:
        """At most, over the symbols' ranges."""
        return peak_live(self.graph, lambda tensor: storage_bounds(tensor, self.graph.symbols)[1])

    @functools.cached_property
    def symbolic(self) -> bool:
        """Whether it depends on symbols."""
        tensors = [tensor for node in self.graph.nodes for tensor in node.outputs]
        return any(isinstance(size, str) for tensor in tensors for size in (*tensor.shape, tensor.storage_bytes))

    @property
    def subject(self) -> "Peak":
        """What the rule judges it by."""
        return self

    def row(self, rule: Rule, judgement: Judgement) -> Violation:
        """A judgement as a row at the node that reaches the peak."""
        return row(self.graph, self.graph.node(judgement.node), rule, operand="", measured=judgement.measured,
                   limit=judgement.limit, message=judgement.message, suggestion=judgement.suggestion,
                   undecided=judgement.undecided, cost=judgement.cost)  # fmt: skip


def peaks(graph: GraphRecord, rule: Rule, *, forward_checked: bool) -> Iterator[Peak]:
    """What the memory_peak rule looks at: the graph's one peak."""
    yield Peak(graph)


def memory_peak(subject: Peak, rule: Rule) -> Iterator[Judgement]:
    """One judgement where more than ``rule.value`` bytes are alive at once, at the node that reaches the peak.

    Symbolic sizes are decided by their ranges, else as this case had them; a peak that fits here, but need not, is
    undecided.
    """
    limit = int(rule.value)
    peak, name = subject.here
    if not name or (peak is not None and peak <= limit and not subject.symbolic):
        return
    if peak is not None and peak > limit:
        yield _above(peak, name, limit)
        return
    (least, at), (most, _) = subject.least, subject.most
    if most is not None and most <= limit:
        return
    if least is not None and least > limit:
        yield _above(least, at, limit)
        return
    here = "not known: a size has no value in this case" if peak is None else f"{peak:,} bytes in this case"
    yield Judgement(
        measured="" if peak is None else peak,
        limit=limit,
        undecided=True,
        message=f"the peak of live memory is {here}, and may be {'any number' if most is None else f'{most:,}'}",
        suggestion=BOUND,
        node=name,
    )


def _above(peak: int, name: str, limit: int) -> Judgement:
    return Judgement(
        measured=peak,
        limit=limit,
        cost=peak - limit,
        message=f"{peak:,} bytes are alive here at once, more than {limit:,}",
        suggestion="lower the batch, recompute activations (torch.utils.checkpoint) or use a narrower dtype",
        node=name,
    )


def custom(graph: GraphRecord, rule: Rule) -> Iterator[Violation]:
    """What the callable ``rule.value._target_`` finds, called as ``function(graph, **the_other_keys)``.

    It yields mappings with ``node`` (a name in the graph) and ``message``, and any of :data:`FINDING`;
    or :class:`CustomFinding`.

    Raises:
        ConfigurationError: the callable gives something else, or raises.
    """
    key = f"accel.rules: custom rule {rule.value['_target_']}"
    arguments = {name: value for name, value in rule.value.items() if name != "_target_"}
    function = custom_function(rule.value["_target_"])
    try:
        findings = list(function(graph, **arguments))
    except Exception as error:  # a user's callable may raise anything
        raise ConfigurationError(f"{key}: raised {type(error).__name__}: {error}, on {graph.id}") from error
    for finding in (_checked(finding, key) for finding in findings):
        try:
            node = graph.node(finding.node)
        except KeyError as error:
            raise ConfigurationError(f"{key}: {error.args[0]}; valid: the name of one of its nodes") from error
        if rule.operations and not selects(rule.operations, node):
            continue
        producer = graph.by_name.get(dict(operands_of(node)).get(finding.operand, ""))
        yield row(
            graph,
            node,
            rule,
            operand=finding.operand,
            measured=finding.measured,
            limit=finding.limit,
            message=finding.message,
            suggestion=finding.suggestion,
            undecided=finding.undecided,
            cost=None if finding.cost_bytes is None else int(finding.cost_bytes),
            share=None if finding.cost_share is None else float(finding.cost_share),
            piece=f"{identity(graph, producer, 0)}:" if producer else "",
        )


def _checked(finding: Any, key: str) -> CustomFinding:
    """ConfigurationError where a custom rule's finding has not the right keys, or a wrong type at one."""
    held = vars(finding) if isinstance(finding, CustomFinding) else finding
    if not isinstance(held, Mapping) or not {"node", "message"} <= set(held) <= set(FINDING):
        raise ConfigurationError(
            f"{key}: yielded {finding!r}; valid: a mapping with node and message, and any of {', '.join(FINDING)}"
        )
    for name, (types, valid) in _TYPES.items():
        value = held.get(name)
        wrong = name in held and (not isinstance(value, types) or (isinstance(value, bool) and bool not in types))
        if wrong or (isinstance(value, Real) and not 0 <= float(value) < math.inf):
            raise ConfigurationError(f"{key}: yielded {finding!r}, whose {name} is {value!r}; valid: {valid}")
    return CustomFinding(**held)


def check_custom(rule: Rule) -> None:
    """ConfigurationError where a custom rule's callable is not there, or does not take the rule's arguments."""
    function = custom_function(rule.value["_target_"])
    arguments = {name: value for name, value in rule.value.items() if name != "_target_"}
    try:
        signature = inspect.signature(function)
        signature.bind(None, **arguments)
    except ValueError:  # some callables written in C have no signature
        return
    except TypeError as error:
        target = rule.value["_target_"]
        raise ConfigurationError(
            f"accel.rules: custom rule {target}: {error}; got {', '.join(arguments) or 'none'}; valid: what its "
            f"signature {signature} takes behind the graph.\nTry: value: {{_target_: {target}, NAME: VALUE}}"
        ) from error


def custom_function(path: str) -> Callable[..., Any]:
    """The callable of a dotted path; ConfigurationError where there is none."""
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name) if module else None
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"accel.rules: the custom rule's _target_ {path!r} can't be imported: {error}; valid: "
            "package.module.function.\nTry: PYTHONPATH=FOLDER that holds it"
        ) from error
    if not callable(found):
        raise ConfigurationError(
            f"accel.rules: the custom rule's _target_ {path!r} is no callable; valid: package.module.function"
        )
    return found
