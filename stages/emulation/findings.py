"""What an emulated graph did that a user wants to know of, each with its node and source line."""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from inductor_debug.stages.artifacts.lowered_tables import Finding
from inductor_debug.stages.emulation.kinds import DEFECTS, KINDS
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graphs.records import NodeRecord

log = logging.getLogger(__name__)


class Findings:
    """Findings by graph, node and kind; each is logged once, as a warning."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Finding] = {}

    def add(self, graph: str, node: NodeRecord, kind: str, message: str, **figures: Any) -> None:
        """Keep a finding; of one found again, in another run, the one with more elements.

        Args:
            graph: the graph's id.
            node: where it is.
            kind: one of :data:`~stages.emulation.kinds.KINDS`.
            message: one sentence.
            figures: ``count``, ``elements``, ``worst``, ``bytes`` and ``flops`` as of :class:`Finding`.

        Raises:
            ValueError: there is no such kind.
        """
        if kind not in KINDS:
            raise ValueError(f"a finding of the kind {kind!r}; valid: {', '.join(KINDS)}")
        source = str(node.source) if node.source else ""
        new = Finding(graph, node.name, node.target, node.module, source, kind, message=message, **figures)
        key = graph, node.name, kind
        old = self._found.get(key)
        if old is None:
            level = logging.INFO if kind in ("fallback", "underflow") else logging.WARNING
            log.log(level, "%s:%s %s: %s  at %s", graph, node.name, node.target, message, source or "an unknown line")
        if old is None or (new.count or 0) > (old.count or 0):
            self._found[key] = new

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found.values())

    def __len__(self) -> int:
        return len(self._found)

    def counts(self) -> dict[str, int]:
        """Kind → number of nodes, for the kinds that were found."""
        found = Counter(item.kind for item in self)
        return {kind: found[kind] for kind in KINDS if found[kind]}

    @property
    def defects(self) -> bool:
        """Whether there is one of :data:`~stages.emulation.kinds.DEFECTS`."""
        return any(item.kind in DEFECTS for item in self)

    def describe(self) -> str:
        """``2 pad_leak, 1 fallback``, or ``nothing``."""
        return ", ".join(f"{count} {kind}" for kind, count in self.counts().items()) or "nothing"

    def describe_worst(self) -> str:
        """The first leak or overflow, where there is one."""
        for kind in ("int_overflow", "pad_leak", "overflow", "not_emulated"):
            for item in self:
                if item.kind == kind:
                    line = item.source or "an unknown line"
                    return f"The first {kind}: {item.graph}:{item.node} {item.message} at {line}."
        return ""


def describe_elements(count: int, total: int) -> str:
    """``3 of 12 elements``."""
    return f"{count} of {counted(total, 'element')}"
