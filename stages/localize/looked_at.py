"""One run of a graph that was looked at: its rows in the table, and who is at fault in it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torch import fx

from inductor_debug.stages.artifacts.localization import Culprit, NodeRow, Share
from inductor_debug.stages.localize.accounting.account import Account
from inductor_debug.stages.localize.accounting.shares import Shares
from inductor_debug.stages.localize.judging.replay import Local, is_steady
from inductor_debug.stages.localize.runs.regions import Seen, computes
from inductor_debug.stages.localize.searching.suspects import Found
from inductor_debug.stages.localize.sources import Origin, place_of

LARGEST = 8
"""Shares of the final error that are told by name."""


@dataclass
class LookedAt:
    """A run, where its nodes come from, and the comparison of each value that was seen.

    Attributes:
        cut: why not all of them were compared; empty where they were.
    """

    seen: Seen
    origins: dict[str, Origin]
    locals: list[Local] = field(default_factory=list)
    cut: str = ""

    @property
    def operations(self) -> set[tuple[str, str]]:
        """Graph id and name of each node that computes."""
        return {(self.seen.id, node.name) for node in self.seen.graph.nodes if computes(node)}

    @property
    def checked(self) -> set[tuple[str, str]]:
        """Of those, the ones in the region of a value that was compared."""
        return {(self.seen.id, node.name) for local in self.compared for node in local.region.operations}

    @property
    def compared(self) -> list[Local]:
        """The values that could be."""
        return [local for local in self.locals if local.row is not None]

    def culprit(self, item: Found) -> Culprit:
        """What was found, as it is stored."""
        local, seen = item.local, self.seen
        assert local.row is not None
        values = (*(node.name for node in reversed(item.nodes)), item.within)
        kernel = next((seen.kernels[value] for value in values if value in seen.kernels), "")
        return Culprit(
            place=place_of(seen.id, item.nodes, self.origins, kernel),
            kind=item.kind,
            ratio=local.row.ratio,
            slope=local.slope,
            call=seen.call,
            index=None if local.row.worst_index is None else list(local.row.worst_index),
            got=local.row.worst_test,
            expected=local.row.worst_reference,
            shows=item.shows,
        )

    def rows(self, shares: Shares) -> list[NodeRow]:
        """A row a value that was compared, or that is told of for its share alone, in the order of the computation."""
        order = {node.name: index for index, node in enumerate(self.seen.graph.nodes)}
        return sorted(self._rows(shares), key=lambda row: order.get(row.node, len(order)))

    def _rows(self, shares: Shares) -> Iterator[NodeRow]:
        seen = self.seen
        told = {local.region.node.name for local in self.locals}
        for local in self.locals:
            node, row = local.region.node, local.row
            right = "slope" if is_steady(local) else "right"
            yield replace(
                self._row(node, "not_checked" if row is None else "wrong" if local.wrong else right, shares),
                operations=" ".join(operation.name for operation in local.region.operations),
                elements=None if row is None else row.elements,
                dtype="" if row is None else row.dtype,
                ratio=None if row is None else row.ratio,
                bound="" if row is None else row.bound,
                error_rms=None if row is None else row.error_rms,
                floor_rms=None if row is None else row.floor_rms,
                slope=local.slope,
                slope_noise=local.slope_noise,
                message=local.unchecked,
            )
        for node in seen.graph.nodes:
            if node.name not in told and not seen.call and (seen.id, node.name) in {**shares.own, **shares.decisions}:
                yield self._row(node, "not_compared", shares)

    def _row(self, node: fx.Node, state: str, shares: Shares) -> NodeRow:
        """What is told of any value; the share of all runs of the graph in the first's row."""
        seen, origin = self.seen, self.origins.get(node.name, Origin())
        share, decisions = (None if seen.call else part.get((seen.id, node.name))
                            for part in (shares.own, shares.decisions))  # fmt: skip
        return NodeRow(
            seen.id, seen.call, node.name, str(node.target), node.name, origin.original, origin.module, origin.source,
            seen.kernels.get(node.name, ""), None, "", state,
            share=share, decisions=decisions,
        )  # fmt: skip


def unchecked(graphs: Sequence[LookedAt]) -> dict[str, str]:
    """Operator → how many of it were not checked, and why."""
    found: dict[str, Counter[str]] = {}
    for graph in graphs:
        checked = graph.checked
        reasons = {node: local.unchecked for local in graph.locals if local.unchecked
                   for node in local.region.operations}  # fmt: skip
        for node in filter(computes, graph.seen.graph.nodes):
            if (graph.seen.id, node.name) not in checked:
                why = reasons.get(node, graph.cut or "no value that depends on it was seen")
                found.setdefault(str(node.target), Counter())[why] += 1
    return {target: "; ".join(f"{count}: {why}" for why, count in counts.items()) for target, counts in found.items()}


def largest(graphs: Sequence[LookedAt], accounted: Account) -> list[Share]:
    """The largest shares of the final error."""
    seen = [*(graph.seen for graph in graphs), *accounted.sums]
    nodes = {(item.id, node.name): node for item in seen for node in item.graph.nodes}
    origins = {graph.seen.id: graph.origins for graph in graphs}
    found = []
    for (graph_id, name), share in accounted.ranked[:LARGEST]:
        node, origin = nodes[graph_id, name], origins.get(graph_id, {}).get(name, Origin())
        found.append(Share(graph_id, name, str(node.target), origin.module, origin.source, share))
    return found
