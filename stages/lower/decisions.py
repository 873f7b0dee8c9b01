"""What TorchInductor decided: which operations share a kernel, which do not and why, which kernel was the fastest."""

import math
from typing import TYPE_CHECKING

from inductor_debug.stages.artifacts.lowered_tables import CandidateRow, FusionRow, KernelRow
from inductor_debug.stages.artifacts.lowering import LaunchRecord
from inductor_debug.stages.torch_internals.inductor_scheduler import fused_members

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor_scheduler import Schedule


def fusions(schedule: "Schedule") -> list[FusionRow]:
    """One row a decision of the scheduler: ``first`` and ``second`` as the IR names them.

    A fused node is one row for each member after the first. Of what was not fused there are the pairs for which the
    compiler gave a reason. A pair may be refused more than once (``times``), and fused in the end with others.
    """
    rows: list[FusionRow] = []
    for node in schedule.nodes:
        first, *others = node.members
        rows += [FusionRow(first, other, True, "", 1, *_origins(schedule, first, other)) for other in others]
    for item in schedule.refusals:
        pair = _origins(schedule, item.first, item.second)
        rows.append(FusionRow(item.first, item.second, False, item.reason, item.times, *pair))
    return rows


def _origins(schedule: "Schedule", *nodes: str) -> list[str]:
    """The post-grad nodes behind nodes of the scheduler; a fused one is called after its members."""
    found = []
    for node in nodes:
        members = [node] if node in schedule.origins else fused_members(node)
        names = sorted({origin for member in members for origin in schedule.origins.get(member, [])})
        found.append(" ".join(names))
    return found


def autotuning(schedule: "Schedule") -> list[CandidateRow]:
    """One row a timed candidate, the fastest of each operation first; no time for a candidate that failed.

    The fastest is what torch takes, unless it fuses more into another template than that one's lead: on a GPU it times
    these together once more. ``kernels.csv`` has what runs.
    """
    return [
        CandidateRow(
            item.operation,
            " ".join(item.inputs),
            name,
            milliseconds if math.isfinite(milliseconds) else None,
            not index,
        )
        for item in schedule.autotuning
        for index, (name, milliseconds) in enumerate(item.choices)
    ]


def kernel_rows(kernels: list[LaunchRecord]) -> list[KernelRow]:
    """``kernels.csv``: one row a launch."""
    return [
        KernelRow(
            name=kernel.name,
            handle=kernel.handle,
            kind=kernel.kind,
            file=kernel.file,
            nodes=" ".join(kernel.nodes),
            modules=" ".join(kernel.modules),
            source=str(kernel.main or ""),
            lines=len(kernel.sources),
            bytes_read=kernel.bytes_read,
            bytes_written=kernel.bytes_written,
        )
        for kernel in kernels
    ]
