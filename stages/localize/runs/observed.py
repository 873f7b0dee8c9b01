"""What TorchInductor's own kernels made of each operation: their buffers, seen while the compiled code runs."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import CompiledCase, compile_case
from inductor_debug.stages.localize.judging.evaluation import taken_by
from inductor_debug.stages.localize.runs.functional import made_functional
from inductor_debug.stages.localize.runs.kept import Kept, Standing, Store, has_tensor
from inductor_debug.stages.localize.runs.regions import Seen, addresses_of, given_by, is_view
from inductor_debug.stages.torch_internals.generated_kernels import split_kernels
from inductor_debug.stages.torch_internals.generated_launches import Launch, find_launches, reused_buffers
from inductor_debug.stages.torch_internals.inductor import LoweredGraph
from inductor_debug.stages.torch_internals.inductor_scheduler import Schedule
from inductor_debug.stages.torch_internals.observed_buffers import Observing

CUDA_GRAPHS = "triton.cudagraphs"


@dataclass
class _Run:
    """One run of a graph's wrapper: copies of what it let go of, and of what it gave back, as a store keeps them."""

    graph: str
    number: int
    addresses: dict[str, int]
    inputs: Kept[str]
    buffers: Kept[str]
    outputs: Kept[int]


class Observer:
    """A case compiled so that every buffer is seen; called as the module.

    Args:
        case: left as found.
        adapter: one that has :meth:`~AcceleratorAdapter.rewriting_backend`. Its kernels run without CUDA graphs.

    Attributes:
        compiled: the compiled case.
        missing: graph id → why its buffers are not seen.
    """

    def __init__(self, case: Case, adapter: AcceleratorAdapter) -> None:
        self._observing = Observing(self)
        self.missing = self._observing.missing
        self._runs: list[_Run] = []
        self._on = False
        self._case, self._store = case, Store()
        self._standing: Container[object] = ()
        if (adapter.inductor_options() or {}).get(CUDA_GRAPHS):  # a graph's replay runs no line of the wrapper
            adapter = adapter.switched({CUDA_GRAPHS: False})
        backend = adapter.rewriting_backend(self._observing.rewrite)
        assert backend is not None, "the caller asked"
        self.compiled: CompiledCase = compile_case(case, adapter, backend)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's call; from here on what its kernels make is kept."""
        self._on = True  # the step in which it was compiled is of no interest
        self._standing = Standing(self._case)
        return self.compiled(*args, **kwargs)

    def seen(self) -> list[Seen]:
        """Every run of every graph, in order."""
        graphs = self.compiled.graphs
        modules = {run.graph: graphs[run.graph].module for run in self._runs}
        roots = {name: made_functional(module.graph) for name, module in modules.items() if module is not None}
        return [_seen(graphs[run.graph], run, roots[run.graph]) for run in self._runs]

    # what a rewritten module tells, see observed_buffers.Watcher

    def inputs(self, graph: str, names: Mapping[str, Any]) -> None:
        if not self._on:
            return
        lowered = self.compiled.graphs[graph]
        given = {name: names[name] for name in _placeholders(lowered) if name in names}
        written = {name for node in lowered.schedule.nodes for name in node.mutates}
        written |= set(reused_buffers(lowered.source_code, given).values())
        kept = Kept[str](self._store)
        for name, value in given.items():
            kept.keep(name, value, () if name in written else self._standing)
        number = sum(run.graph == graph for run in self._runs)
        self._runs.append(_Run(graph, number, addresses_of(given), kept, Kept(self._store), Kept(self._store)))

    def buffers(self, graph: str, values: Mapping[str, Any]) -> None:
        if self._on:
            self._runs[-1].buffers.update({name: it for name, it in values.items() if isinstance(it, torch.Tensor)})

    def outputs(self, graph: str, values: Sequence[Any]) -> None:
        if self._on:
            run, module = self._runs[-1], self.compiled.graphs[graph].module
            assert module is not None
            run.outputs.update(enumerate(values))
            run.addresses |= addresses_of(given_by(module.graph, values))


def _placeholders(lowered: LoweredGraph) -> set[str]:
    assert lowered.module is not None
    return {node.name for node in lowered.module.graph.nodes if node.op == "placeholder"}


def _seen(lowered: LoweredGraph, run: _Run, roots: Mapping[str, str]) -> Seen:
    """The buffers and the results as values of the nodes whose outputs they are."""
    assert lowered.module is not None
    graph = lowered.module.graph
    owners = _owners(lowered.schedule, graph, roots)
    kernels = {kernel.name for kernel in split_kernels(lowered.source_code)}
    launches = find_launches(lowered, kernels)
    makers, read = _makers(lowered.schedule, launches), _read(lowered.schedule, launches)
    nodes = {node.name: node for node in graph.nodes}
    made = {owner: makers[name] for name, owner in owners.items() if name in makers}
    values = Kept[str](run.buffers.store)
    for name, value in run.buffers.entries.items():
        if name in owners and (name in read or name in run.inputs):
            values.entries[owners[name]] = value
            if _is_narrowed(value, nodes[owners[name]]):
                values[owners[name]] = run.buffers[name].to(nodes[owners[name]].meta["val"].dtype)
    for name, place in given_by(graph, range(len(run.outputs))).items():
        if has_tensor(run.outputs, place):
            values.entries.setdefault(name, run.outputs.entries[place])
    by = {name: maker for name in nodes if name in values and (maker := _maker(nodes[name], made))}
    return Seen(lowered.id, graph, lowered.module, run.inputs, values, by, run.number, run.addresses)


def _is_narrowed(value: Any, node: fx.Node) -> bool:
    """Whether a kernel left whole numbers in a narrower type than the graph has them in."""
    wanted = node.meta.get("val")
    if not isinstance(wanted, torch.Tensor) or wanted.dtype.is_floating_point or value.dtype.is_floating_point:
        return False
    return bool(wanted.dtype.itemsize > value.dtype.itemsize)


def _maker(node: fx.Node, made: Mapping[str, str]) -> str:
    """The launch that made a value, or what it is a view of; empty where that is not known."""
    while node.name not in made and is_view(node) and len(taken_by(node)) == 1:
        (node,) = taken_by(node)
    return made.get(node.name, "")


def _owners(schedule: Schedule, graph: fx.Graph, roots: Mapping[str, str]) -> dict[str, str]:
    """Name in the wrapper → the node whose value it holds when the wrapper lets go of it.

    That is the node of which torch says that the buffer is its output. Where others wrote into it since, it is the last
    node that did (see :func:`made_functional`), or that node only if what wrote last computes it too. An input that is
    written into holds what is copied into it.
    """
    nodes = {node.name: node for node in graph.nodes}
    owners = {
        info.name: info.origin
        for info in schedule.buffers.values()
        if info.role == "buffer" and info.origin in nodes and nodes[info.origin].op == "call_function"
    }
    writers = {name: item for item in schedule.nodes for name in item.writes}
    for written, name in schedule.renamed.items():
        owner = owners.get(name)
        origins = writers[written].origins if written in writers else []
        wrote = [node for node, root in roots.items() if root == owner and node in origins]
        if wrote:
            owners[name] = wrote[-1]
        elif owner is not None and owner not in origins:
            del owners[name]
    for node in graph.nodes:
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":
            owners[node.args[0].name] = node.name
    return owners


def _makers(schedule: Schedule, launches: Sequence[Launch]) -> dict[str, str]:
    """Name in the wrapper → ``kernel:handle`` of the launch that wrote it last."""
    return {
        schedule.renamed.get(name, name): launch.key
        for launch in launches
        for node in launch.scheduled
        for name in node.writes
    }


def _read(schedule: Schedule, launches: Sequence[Launch]) -> set[str]:
    """Names in the wrapper of which another launch reads. A kernel need not store what nothing else reads."""
    known = {node.name for launch in launches for node in launch.scheduled}
    names = {name for launch in launches for name in launch.reads}
    names |= {name for node in schedule.nodes if node.name not in known for name in node.reads}
    return {schedule.renamed.get(name, name) for name in names}
