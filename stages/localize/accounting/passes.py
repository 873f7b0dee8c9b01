"""One run of a graph in float64 beside what it really had: every value, its error, and what each operation did wrong.

δ = seen − float64 of what the value's region received is what an operation did wrong, whatever came in.
"""

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.localize.accounting.linear import LINEAR
from inductor_debug.stages.localize.accounting.links import Place
from inductor_debug.stages.localize.judging.choices import settled
from inductor_debug.stages.localize.judging.evaluation import (
    Unknown,
    as_it_is,
    exactly,
    is_floating,
    taken_by,
    value_of,
)
from inductor_debug.stages.localize.judging.noise import apart, difference, largest, squared
from inductor_debug.stages.localize.runs.kept import Kept, Store, Stored, entry_of
from inductor_debug.stages.localize.runs.regions import Seen, is_view, looked_at

SEGMENT = 64
"""Nodes of a graph that are computed at a time. Of what only they take, only what was seen is kept."""


class Pass:
    """One run of a graph.

    Args:
        seen: the run.
        given: input → its error, as :attr:`error`, where an earlier pass gave it.
        links: input → what gave it, of those that an earlier pass gave.
        store: where values are kept.

    Attributes:
        actual: what was seen as it was seen; the rest is computed from that, in float64.
        error: values less what they would be without any error; of masks and indices, what they would be. Only of
            values that differ. This, and what of ``actual`` was not seen, is kept of what was seen, of what the graph
            gives, and of what another segment takes; the rest is computed again by :meth:`backwards`.
        erring: nodes that were seen and so have an error of their own, see :meth:`residual`.
        touched: nodes whose values may have an error.
        lost: nodes of which it is not known what they would be without any error, and why.
        taken: whether its backward pass is known.
    """

    def __init__(
        self, seen: Seen, given: Mapping[fx.Node, torch.Tensor], links: Mapping[fx.Node, Place], store: Store
    ) -> None:
        self.seen, self.links, self.taken = seen, links, False
        self.actual, self.error = Kept[fx.Node](store), Kept[fx.Node](store)
        self.erring: set[fx.Node] = set()
        self.touched: set[fx.Node] = set()
        self.lost: dict[fx.Node, Unknown] = {}
        self._several: dict[fx.Node, Any] = {}  # of one operation, as computed last
        self._segments = _segments(seen.graph)
        self._kept = {node for node in (*self.outputs, *self.placeholders) if isinstance(node, fx.Node)}
        for segment in self._segments:
            own = set(segment)
            self._kept |= {source for node in segment for source in taken_by(node) if source not in own}
            self._kept |= {node for node in segment if node.name in seen.values and not is_view(node)}
        for node in self.placeholders:
            self.actual.entries[node] = entry_of(seen.inputs, node.name) if node.name in seen.inputs else None
            if node in links:
                self.touched.add(node)
            if node in given:
                self.error[node] = given[node].reshape(self.actual[node].shape)
        for segment in self._segments:
            self._fill(segment, once=True)

    def gold(self, node: fx.Node) -> Any:
        """A value as it would be without any error."""
        actual = self.actual[node]
        if node not in self.error:
            return wide(actual)
        return torch.sub(actual.double(), self.error[node]) if is_floating(actual) else self.error[node]

    def gold_squared(self, node: fx.Node) -> float:
        """The sum of the squares of a floating value as it would be without any error."""
        return squared(self.actual[node], self.error.get(node))

    def half_way(self, node: fx.Node) -> Any:
        """A value half-way between the run and gold; of what is not floating, gold's. In a dtype that holds it."""
        actual = self.actual[node]
        if node not in self.error:
            return actual
        return torch.sub(actual, self.error[node], alpha=0.5) if is_floating(actual) else self.error[node]

    def residual(self, node: fx.Node, values: Mapping[fx.Node, Any] | None = None) -> torch.Tensor:
        """What the operations since the last values that were seen did wrong, in float64 or float32.

        Args:
            node: of :attr:`erring`.
            values: what it takes; by default, what it had.
        """
        residuals = self.seen.residuals
        if values is None and residuals is not None and node.name in residuals:
            return residuals[node.name]
        computed = computed_of(node, self._taken(node) if values is None else values, self.seen)
        return difference(self.seen.values[node.name].reshape(computed.shape), computed.double())

    def stand_in(self, node: fx.Node) -> torch.Tensor:
        """A float64 tensor laid out like a value, which holds anything."""
        like = self.actual.entries[node]
        like = like.stand_in() if isinstance(like, Stored) else like
        return torch.empty_strided(like.shape, like.stride(), dtype=torch.float64, device=like.device)

    def shape(self, node: fx.Node) -> torch.Size:
        """Of a tensor."""
        found: torch.Size = self.actual.entries[node].shape
        return found

    def is_floating(self, node: fx.Node) -> bool:
        """Whether a node has a floating tensor."""
        dtype = getattr(self.actual.entries.get(node), "dtype", None)
        return isinstance(dtype, torch.dtype) and dtype.is_floating_point

    def _taken(self, node: fx.Node) -> Mapping[fx.Node, Any]:
        """What a node takes, as it was; of an operation's several results they are computed again."""
        if node.target is not operator.getitem or taken_by(node)[0] in self.actual:
            return self.actual
        (source,) = taken_by(node)
        if source not in self._several:
            self._several = {source: computed_of(source, self.actual, self.seen)}
        return self._several

    def backwards(self) -> Iterator[fx.Node]:
        """The nodes from the last to the first; of what is at hand, everything is known."""
        for segment in reversed(self._segments):
            self._fill(segment)
            yield from reversed(segment)
            self._drop(segment)

    @property
    def outputs(self) -> list[Any]:
        """What the graph gives; what it writes into its inputs comes first."""
        (node,) = (item for item in self.seen.graph.nodes if item.op == "output")
        written = [item for item in self.seen.graph.nodes
                   if item.target is torch.ops.aten.copy_.default and item.args[0].op == "placeholder"]  # fmt: skip
        return [*written, *node.args[0]]

    @property
    def forward(self) -> str:
        """The id of the forward graph that a backward one belongs to."""
        return self.seen.id.removesuffix("backward") + "forward"

    @property
    def placeholders(self) -> list[fx.Node]:
        return [item for item in self.seen.graph.nodes if item.op == "placeholder"]

    @property
    def last_uses(self) -> dict[fx.Node, list[fx.Node]]:
        """Node → those whose values nothing takes after it."""
        last = {source: node for node in self.seen.graph.nodes for source in taken_by(node)}
        found: dict[fx.Node, list[fx.Node]] = {}
        for source, node in last.items():
            found.setdefault(node, []).append(source)
        return found

    def _fill(self, segment: Sequence[fx.Node], *, once: bool = False) -> None:
        """Compute what is not at hand of a segment, and how far it is from gold.

        Args:
            segment: nodes in the graph's order.
            once: let go of what nothing of the segment takes any more.
        """
        golds: dict[fx.Node, Any] = {}  # as long as something of the segment takes them
        place = {node: number for number, node in enumerate(segment)}
        last = place | {source: number for node, number in place.items() for source in taken_by(node)}
        for node, number in place.items():
            if not self._is_at_hand(node):
                right = self._fill_one(node, golds)
                if node in self.touched and isinstance(right, (tuple, list)):
                    golds[node] = right
                elif node in self.touched and is_floating(right):
                    golds[node] = _laid_out_as(self.actual.entries[node], right)
                del right
            done = [source for source in (node, *taken_by(node)) if last[source] == number]
            for source in done:
                golds.pop(source, None)
            if once:
                self._drop(source for source in done if source in place)

    def _fill_one(self, node: fx.Node, golds: Mapping[fx.Node, Any]) -> Any:
        """What gold has of a node; what the node had, and the difference, are kept."""
        touched = any(source in self.touched for source in taken_by(node))
        if self._fill_view(node) or (touched and self._fill_linear(node)):
            return None
        given: Mapping[fx.Node, Any] = self.actual
        if touched:
            given = {source: golds[source] if source in golds else self.gold(source) for source in taken_by(node)}
        right = computed_of(node, given, self.seen)
        if node not in self.actual:
            self._set_actual(node, right, touched=touched)
        if touched and isinstance(right, Unknown):
            self.lost[node] = right
        if isinstance(right, (tuple, list)):
            self.touched.add(node)  # its parts may have errors of their own
        elif touched or node in self.erring:
            self.touched.add(node)
            self._compare(node, right)
        return right

    def _compare(self, node: fx.Node, gold: Any) -> None:
        """Keep how far a value is from gold, or gold's where it is not floating and another."""
        actual = self.actual[node]
        if not isinstance(actual, torch.Tensor) or not isinstance(gold, torch.Tensor) or actual.shape != gold.shape:
            return
        if is_floating(actual):
            self._set_error(node, apart(actual, gold))
            return
        gold = settled(actual, gold)
        if bool((actual != gold).any()):
            self.error[node] = gold

    def _fill_view(self, node: fx.Node) -> bool:
        """The same for a view, of which nothing is computed; False where it has an error of its own, or is none."""
        source = looked_at(node)
        if source is None or (node.name in self.seen.values and not _repeats(node, self.seen)):
            return False
        if node not in self.actual:
            self._set_actual(node, None, touched=True)
        had, have = (getattr(self.actual.entries[each], "dtype", None) for each in (source, node))
        if had != have or (source in self.error and isinstance(self.look(self.error, node), Unknown)):
            return False
        if source in self.touched:
            self.touched.add(node)
        return True

    def _fill_linear(self, node: fx.Node) -> bool:
        """The same for what is linear, by errors alone; False where its own is not known, or it is none."""
        taken = taken_by(node)
        if node.target not in LINEAR or not all(map(self.is_floating, taken)):
            return False
        residuals = self.seen.residuals or {}
        if node.name in self.seen.values and node.name not in residuals:
            return False
        error = own = residuals.get(node.name)
        errors = {source: self.error[source] for source in taken if source in self.error}
        if errors:
            made = LINEAR[node.target].error(node, self.actual, errors)
            error = made if own is None else own + made
        if error is not None:
            error = error.float()
            if not math.isfinite(float(error.sum())):
                return False
        if node not in self.actual:
            self._set_actual(node, own, touched=True)
        if not self.is_floating(node):  # it could not be computed
            return False
        self.touched.add(node)
        if error is not None:
            self._set_error(node, error.expand(self.shape(node)))
        return True

    def _set_error(self, node: fx.Node, error: torch.Tensor) -> None:
        """Keep an error, laid out as the value is: a view of that is a view of both."""
        if error.numel() and float(largest(error)):
            self.error[node] = _laid_out_as(self.actual.entries[node], error)

    def _is_at_hand(self, node: fx.Node) -> bool:
        return self._is_kept(node) or (_has_several(node) and all(map(self._is_kept, node.users)))

    def _is_kept(self, node: fx.Node) -> bool:
        return node in self._kept and node in self.actual

    def _set_actual(self, node: fx.Node, right: Any, *, touched: bool) -> None:
        """Let a node have what was seen of it, or what is computed from what was; ``right`` is what gold has."""
        if node.name in self.seen.values and not _repeats(node, self.seen):
            known = self.actual.entries[node] = entry_of(self.seen.values, node.name)
            if isinstance(right, torch.Tensor) and right.numel() == math.prod(known.shape):
                if known.shape != right.shape:
                    self.actual[node] = self.actual[node].reshape(right.shape)
                if self.is_floating(node) and is_floating(right):
                    self.erring.add(node)
        elif is_view(node) and node.name in self.seen.values:
            self.actual.entries[node] = entry_of(self.seen.values, node.name)
        elif is_view(node) or (touched and not self._is_seen_in_parts(node)):
            self.look(self.actual, node)
        elif node in self._kept:
            self.actual[node] = right
        else:
            self.actual.entries[node] = right

    def _is_seen_in_parts(self, node: fx.Node) -> bool:
        return _has_several(node) and all(user.name in self.seen.values for user in node.users)

    def look(self, values: Kept[fx.Node], node: fx.Node) -> Any:
        """Compute a node from values and keep that, as a view where it is one; among errors only what is known."""
        source = looked_at(node)
        entry = None if source is None else values.entries[source]
        if source is not None and isinstance(entry, (Stored, torch.Tensor)):
            tensor = entry.stand_in() if isinstance(entry, Stored) else entry
            found = computed_of(node, {source: tensor}, self.seen)
            if isinstance(found, torch.Tensor) and values.look(node, found, source, tensor):
                return found
        found = computed_of(node, {each: values[each] for each in taken_by(node)}, self.seen)
        if not isinstance(found, Unknown) or values is not self.error:
            values[node] = found
        return found

    def _drop(self, segment: Iterable[fx.Node]) -> None:
        for node in segment:
            if node not in self._kept:
                self.error.entries.pop(node, None)
                self.actual.entries.pop(node, None)


def _segments(graph: fx.Graph) -> list[list[fx.Node]]:
    """The nodes of a graph, an operation of several results together with these."""
    found: list[list[fx.Node]] = [[]]
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or node.target is operator.getitem:
            continue
        if len(found[-1]) >= SEGMENT:
            found.append([])
        open_still = [node]
        while open_still:
            found[-1].append(open_still.pop())
            open_still += [user for user in found[-1][-1].users if user.target is operator.getitem]
    return found


def _repeats(node: fx.Node, seen: Seen) -> bool:
    """Whether a value is a view of one that was seen."""
    while is_view(node):
        (node, *_) = taken_by(node) or [node]
        if node.name in seen.values or node.op == "placeholder":
            return True
        if not taken_by(node):
            return False
    return False


def _has_several(node: fx.Node) -> bool:
    """Whether a node gives several results, which others take apart."""
    return bool(node.users) and all(user.target is operator.getitem for user in node.users)


def _laid_out_as(entry: Any, value: torch.Tensor) -> torch.Tensor:
    """A value with the strides of another, on which it depends what is a view of it."""
    strides = entry.strides if isinstance(entry, Stored) else entry.stride() if isinstance(entry, torch.Tensor) else ()
    if getattr(entry, "shape", None) != value.shape or tuple(strides) == value.stride() or 0 in strides:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def computed_of(node: fx.Node, values: Mapping[fx.Node, Any], seen: Seen) -> Any:
    """What a node gives, in float64 (a view of what there is), or why that is not known."""
    try:
        return value_of(node, values, seen.owner, as_it_is if is_view(node) else exactly, seen.drawn)
    except Unknown as error:
        return error


def wide(value: Any) -> Any:
    return value.detach().double() if is_floating(value) else value
