"""What a chip must support to run a set of models: operations, dtypes and shapes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.artifacts.kinds import frame
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.rules.engine import check

if TYPE_CHECKING:
    import pandas

REFUSING = ("reject", "fallback")


@dataclass(frozen=True)
class _Row:
    operation: str
    reads: str
    makes: str
    models: int
    calls: int
    calls_share: float
    flops_share: float | None
    least_rank: int | None
    largest_rank: int | None
    largest_size: int | None
    largest_bytes: int | None
    example: str
    refused: int
    undecided: int
    names: str


@dataclass(frozen=True)
class _Call:
    """One call with the tensors that it reads, each once, and makes."""

    node: NodeRecord
    reads: tuple[TensorRecord, ...]
    makes: tuple[TensorRecord, ...]

    @property
    def tensors(self) -> tuple[TensorRecord, ...]:
        return self.reads + self.makes

    @property
    def largest(self) -> int:
        """Bytes of its largest tensor, 0 where none are known."""
        return max((tensor.nbytes or 0 for tensor in self.tensors), default=0)


@dataclass
class _Use:
    models: set[str] = field(default_factory=set)
    calls: list[_Call] = field(default_factory=list)
    refused: int = 0
    undecided: int = 0


def coverage(models: Mapping[str, Sequence[GraphRecord]], profile: Profile) -> "pandas.DataFrame":
    """One row for each operation, with the dtypes that it reads and makes, the most models and then calls first.

    Args:
        models: a model's name → its graphs; AOTAutograd's forward and backward graphs count, Dynamo's where there are
            none.
        profile: what may refuse them; one without rules refuses nothing.

    Columns: ``reads`` and ``makes`` are the dtypes of its operands and of all of its results, each once in their order.
    ``models`` and ``names`` use it. Beside ``calls`` stand their share of all, and of the known FLOPs. Ranks, the
    largest size of a dimension and the bytes of the largest tensor are of operands and results alike. ``example`` is
    the shapes of the call with that tensor, operands before the arrow. For ``refused`` calls the profile has a finding
    whose effect is reject or fallback; for ``undecided`` ones that can't be told.
    """
    uses: dict[tuple[str, str, str], _Use] = defaultdict(_Use)
    for model, graphs in models.items():
        counting = [graph for graph in graphs if graph.kind in ("forward", "backward")] or list(graphs)
        found = [row for row in check(counting, profile) if row.effect in REFUSING and row.severity != "waived"]
        refused = {(row.graph, row.node) for row in found if row.severity != "undecided"}
        unclear = {(row.graph, row.node) for row in found} - refused
        for graph in counting:
            for call in _calls(graph):
                use = uses[call.node.target, _dtypes(call.reads), _dtypes(call.makes)]
                use.models.add(model)
                use.calls.append(call)
                use.refused += (graph.id, call.node.name) in refused
                use.undecided += (graph.id, call.node.name) in unclear
    calls = sum(len(use.calls) for use in uses.values())
    flops = sum(call.node.flops or 0 for use in uses.values() for call in use.calls)
    rows = [_row(key, use, calls, flops) for key, use in uses.items()]
    return frame(_Row, sorted(rows, key=lambda row: (-row.models, -row.calls, row.operation, row.reads, row.makes)))


def _calls(graph: GraphRecord) -> Iterator[_Call]:
    for node in graph.nodes:
        if node.is_operation:
            read = (made for name in node.inputs if name in graph.by_name for made in graph.by_name[name].outputs)
            yield _Call(node, tuple(read), tuple(node.outputs))


def _dtypes(tensors: Iterable[TensorRecord]) -> str:
    return " ".join(dict.fromkeys(tensor.dtype for tensor in tensors))


def _shapes(tensors: Iterable[TensorRecord]) -> str:
    return ", ".join("x".join(map(str, tensor.shape)) or "scalar" for tensor in tensors)


def _row(key: tuple[str, str, str], use: _Use, calls: int, flops: int) -> _Row:
    tensors = [tensor for call in use.calls for tensor in call.tensors]
    ranks = [len(tensor.shape) for tensor in tensors]
    largest = max(use.calls, key=lambda call: call.largest)
    own = sum(call.node.flops or 0 for call in use.calls)
    return _Row(
        *key,
        models=len(use.models),
        calls=len(use.calls),
        calls_share=len(use.calls) / calls,
        flops_share=own / flops if flops else None,
        least_rank=min(ranks, default=None),
        largest_rank=max(ranks, default=None),
        largest_size=max((size for tensor in tensors for size in tensor.concrete_shape or ()), default=None),
        largest_bytes=largest.largest or None,
        example=f"{_shapes(largest.reads)} -> {_shapes(largest.makes)}",
        refused=use.refused,
        undecided=use.undecided,
        names=" ".join(sorted(use.models)),
    )
