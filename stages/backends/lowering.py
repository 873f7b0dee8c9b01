"""What an adapter tells of the code that it made of a graph, beside what is known of the graph itself."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from torch import fx

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.file_names import file_name
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.torch_internals.fx_records import target_name
from inductor_debug.stages.torch_internals.generated_kernels import Kernel
from inductor_debug.stages.torch_internals.inductor import LoweredGraph
from inductor_debug.stages.torch_internals.inductor_nodes import (
    lifted_placeholders,
    origins_by_sequence,
    post_grad_nodes,
    pre_grad_nodes,
)

OURS = ("pre_grad.py", "post_grad.py", "post_grad.svg", "kernels.csv", "nodes.json", "provenance.json")
"""Files of ``lower/GRAPH`` that are written of any graph."""
TAKEN = (*OURS, "autotuning.csv", "fusions.csv", "joint.py", "kernels")
"""Names there that are read as ours."""
EXTERN = "extern"


@dataclasses.dataclass(frozen=True)
class LoweredKernel:
    """One launch of a kernel, in the order in which a graph's callable makes them.

    Attributes:
        name: of the kernel; one that is launched twice is told twice.
        nodes: names of the nodes that it computes, of the graph that ``compile`` was given.
        source: its code, where there is any.
        kind: its language; ``extern`` for a function of a library's, which has no code here.
    """

    name: str
    nodes: Sequence[str] = ()
    source: str = ""
    kind: str = "kernel"


@dataclasses.dataclass(frozen=True)
class Lowering:
    """What one graph was lowered to.

    Attributes:
        texts: file name → text: intermediate representations, generated code. Each is shown as ``lower/GRAPH/NAME``.
        kernels: the launches; empty where the graph needs none, None where they are not told.
    """

    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kernels: Sequence[LoweredKernel] | None = None


@dataclasses.dataclass
class ToldGraph(LoweredGraph):
    """A graph that an adapter compiled, with what the adapter told of it.

    Attributes:
        backend: the adapter's name.
        kernels: what its launches run, each once; None where they are not told.
        texts: as of :class:`Lowering`.
    """

    backend: str = ""
    kernels: list[Kernel] | None = None
    texts: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_dynamo(cls, id: str, gm: fx.GraphModule, backend: str) -> "ToldGraph":
        """What all graphs that come from Dynamo's graph ``gm`` share. ``id``: ``g0``, ``g1``, …"""
        return cls(
            id,
            pre_grad=_readable(gm),
            pre_grad_nodes=pre_grad_nodes(gm),
            placeholders=lifted_placeholders(gm),
            backend=backend,
        )

    def given(self, direction: str, gm: fx.GraphModule, record: GraphRecord) -> "ToldGraph":
        """The graph as ``compile`` is given it, before that may change it.

        Args:
            direction: ``forward``, ``backward`` or ``dynamo``.
            record: its own.
        """
        self.by_sequence = self.by_sequence or origins_by_sequence(gm)
        nodes = post_grad_nodes(gm, {node.name for node in self.pre_grad_nodes}, self.by_sequence)
        if direction == "dynamo":
            targets = {node.name: target_name(node.target) for node in gm.graph.nodes}
            nodes = [dataclasses.replace(node, target=targets[node.name], pre_grad=(node.name,)) for node in nodes]
        code = _readable(gm)
        return ToldGraph(
            f"{self.id}.{direction}",
            pre_grad=self.pre_grad,
            pre_grad_nodes=self.pre_grad_nodes,
            placeholders=self.placeholders,
            by_sequence=self.by_sequence,
            readable=code,
            post_grad=code,
            nodes=nodes,
            record=record,
            backend=self.backend,
        )

    def tell(self, told: Lowering | None) -> None:
        """Take over what the adapter told of it.

        Raises:
            ConfigurationError: it is no ``Lowering``, or a text has a name that no file can have.
        """
        if told is not None and not isinstance(told, Lowering):
            raise ConfigurationError(
                f"backend.adapter: lowering() of the adapter {self.backend} gave {type(told).__name__}; valid: an "
                "inductor_debug.Lowering, or None.\nTry: return Lowering(texts={'code.s': text})"
            )
        self.texts = dict(told.texts) if told is not None else {}
        for name in self.texts:
            if name in TAKEN or name != file_name(name):
                raise ConfigurationError(
                    f"backend.adapter: lowering() of the adapter {self.backend} named a text {name!r}; valid: a file's "
                    f"name without a folder, other than {', '.join(TAKEN)}.\nTry: texts={{'code.s': text}}"
                )
        if told is None or told.kernels is None:
            self.not_established.append(f"what kernels run: the backend {self.backend} does not tell them")
            return
        self.kernels = [
            Kernel(launch.name, launch.kind, launch.source)
            for launch in {launch.name: launch for launch in told.kernels}.values()
            if launch.kind != EXTERN
        ]
        known, counts = {node.name for node in self.nodes}, Counter[str]()
        for launch in told.kernels:
            counts[launch.name] += 1
            self.kernel_nodes[f"{launch.name}:{counts[launch.name]}"] = list(launch.nodes)
            unknown = [name for name in launch.nodes if name not in known]
            if unknown:
                self.not_established.append(
                    f"all that the kernel {launch.name} computes: the graph has no node {', '.join(unknown)}"
                )


def _readable(gm: fx.GraphModule) -> str:
    return gm.print_readable(print_output=False, include_stride=True, include_device=True)
