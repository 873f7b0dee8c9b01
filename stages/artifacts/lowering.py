"""What lower stores: of each graph, and where its kernels came from.

A kernel's launch is written ``name:handle``, a source line ``file:line``.
"""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import OMITTED, Number
from inductor_debug.stages.artifacts.measurements import CacheUse
from inductor_debug.stages.graphs.records import TensorRecord

Size = int | str


@dataclass(frozen=True)
class LineRecord:
    """A source line; ``own``: whether it is of the model's own code."""

    file: str
    line: int
    code: str
    own: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class MainLine(LineRecord):
    """The line that most of a launch came from, with its share of the launch."""

    share: float


@dataclass(frozen=True)
class CapturedNode:
    """A node of a captured graph."""

    graph: str
    node: str


@dataclass(frozen=True)
class BufferRecord:
    """A buffer that a launch reads or writes.

    Attributes:
        role: input, buffer, output, …
        bytes: None where a size is not known.
        accessed_bytes: those of the ``bytes`` that the kernel's loops come to at most: few rows of a table in which it
            looks something up. Of a library's function they are all.
    """

    name: str
    role: str
    shape: list[Size]
    dtype: str
    bytes: int | None
    accessed_bytes: int | None = None


@dataclass(frozen=True)
class CopyRecord:
    """A buffer that a launch only copies beside what it computes, as into another layout.

    Attributes:
        of: the buffer of which it is a copy, or "".
        for_: the launch for which it is copied; None where no launch with a line reads it.
    """

    buffer: str
    of: str
    for_: str | None


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """One launch of a kernel.

    Attributes:
        handle: also in the generated code, as a comment; None of a kernel that no launch was recorded for.
        kind: ``cpp``, ``triton``, …; ``extern``: a library's or ATen's function.
        file: relative to the graph's folder; None for an extern kernel.
        nodes: post-grad nodes that it computes.
        pre_grad: nodes of the Dynamo graph behind them.
        modules: of what it computes: views, which compute nothing, left out.
        captured: nodes of captured graphs behind them.
        sources: the model's own first, of these the one whose operations handle the most elements.
        own: whether a line of the model's own is among them.
        prepares: of a kernel that came from no operation, the launches that lend it their lines.
        copies: what it copies; all that one writes that came from no operation.
        main: the line that most of it came from, as of ``sources`` or of what it prepares, with its share as of
            :class:`stages.lower.attribution.Parts`.
        bytes_read, bytes_written: None where a size is not known.
    """

    name: str
    handle: int | None
    kind: str
    file: str | None
    nodes: list[str]
    pre_grad: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    captured: list[CapturedNode] = field(default_factory=list)
    sources: list[LineRecord]
    own: bool = False
    prepares: list[str] = field(default_factory=list)
    copies: list[CopyRecord] = field(default_factory=list)
    main: MainLine | None = None
    reads: list[BufferRecord]
    writes: list[BufferRecord]
    bytes_read: int | None
    bytes_written: int | None

    @property
    def launch(self) -> str:
        """``name:handle``; the name alone where there is no handle."""
        return self.name if self.handle is None else f"{self.name}:{self.handle}"


@dataclass(frozen=True)
class MappedNode:
    """A post-grad node with what it came from: one of ``nodes`` of nodes.json.

    Attributes:
        target: what it calls.
        original: the operation before decomposition; "" where torch lost it.
        source: a source line.
        pre_grad: names of the Dynamo graph's nodes.
        captured: nodes of a captured graph.
        by: how those were found: ``operation``, ``line`` (the operation was made by one of Inductor's passes: the nodes
            of its line), or "" where nothing fits.
        inputs: names of the nodes that it reads, placeholders too.
        outputs: every tensor that it makes; empty of a node of a subgraph.
    """

    node: str
    target: str = ""
    original: str = ""
    module: str = ""
    source: str | None = field(kw_only=True)
    pre_grad: list[str] = field(default_factory=list)
    captured: list[CapturedNode] = field(default_factory=list)
    by: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[TensorRecord] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class MappedNodes:
    """lower/GRAPH/nodes.json."""

    graph: str = ""
    nodes: list[MappedNode]


@dataclass(frozen=True)
class PreGradNode:
    """A node of the Dynamo graph, with what became of it."""

    node: str
    target: str
    module: str
    source: str | None
    post_grad: list[str]
    kernels: list[str]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """lower/GRAPH/provenance.json.

    Attributes:
        kernels: one a launch, then kernels that no launch was recorded for.
        kernels_mapped_share: of the launches that lead to a line of the model's own; None for no launch.
        generated_mapped_share: the same of those that are no library's function.
        nodes_mapped_share: of the post-grad nodes that lead to captured ones; None without a captured graph.
        nodes_pre_fusion, nodes_post_fusion: of the scheduler.
        not_established: what could not be found out, one text each.
        pre_grad_nodes: what became of each node of the Dynamo graph.
        post_grad_nodes: name → launches.
        modules: path → the launches that compute something of it.
        lines: the model's own lines → launches.
    """

    graph: str = ""
    kernels: list[LaunchRecord]
    kernels_mapped_share: float | None = None
    generated_mapped_share: float | None = None
    nodes_mapped_share: float | None = None
    nodes_pre_fusion: int | None = None
    nodes_post_fusion: int | None = None
    not_established: list[str] = field(default_factory=list)
    pre_grad_nodes: list[PreGradNode] = field(default_factory=list)
    post_grad_nodes: dict[str, list[str]] = field(default_factory=dict)
    modules: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LoweredFacts:
    """One of ``graphs`` of lower/summary.json; the last six are as of :class:`Provenance`.

    Attributes:
        seconds: that its compilation took.
        kernels: how many the generated module defines; None, as the launches, where the backend does not tell.
        launches: of kernels; ``extern_launches`` those of library functions among them.
    """

    seconds: Number | None = None
    kernels: int | None = None
    launches: int | None = None
    extern_launches: int | None = None
    kernels_mapped_share: float | None = None
    generated_mapped_share: float | None = None
    nodes_mapped_share: float | None = None
    nodes_pre_fusion: int | None = None
    nodes_post_fusion: int | None = None
    not_established: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PrinterRecord:
    """What the printer of intermediate values was asked, and what that cost.

    Attributes:
        level: of the printer, 1 to 3. kernels: by name; empty for all.
        seconds: of the compilation and the step.
        stored_bytes: of values. silent: kernels that were launched and of which nothing was told.
    """

    level: int
    kernels: list[str]
    seconds: Number | None = None
    stored_bytes: int = 0
    silent: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """lower/summary.json.

    Attributes:
        compile_s: wall seconds of the first step.
        caches: which the compilation met.
        inductor_options: what was patched.
        graphs: by id.
        printer: where one was asked for.
    """

    backend: str = ""
    compile_s: Number | None = None
    caches: CacheUse = field(default_factory=CacheUse)
    inductor_options: dict[str, Any] = field(default_factory=dict)
    graphs: dict[str, LoweredFacts]
    printer: PrinterRecord | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True, kw_only=True)
class NotCompiled:
    """lower/not_compiled.json: where the compiler stopped.

    Attributes:
        graph: that it was compiling.
        kernel: whose code did not compile; "" where that is not known, and the rest is empty.
        file: with its source, relative to the graph's folder.
        statement: the line of that source which the compiler quotes; "" where it quotes none.
        nodes: post-grad nodes that it computes; operations: what these call, before decomposition, each once.
        modules, sources: of what it computes.
    """

    graph: str
    kernel: str = ""
    file: str | None = None
    statement: str = ""
    nodes: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    sources: list[LineRecord] = field(default_factory=list)


@dataclass(frozen=True)
class EmulationFacts:
    """What is read of lower/emulation.json; an adapter may tell more.

    Attributes:
        numerics: of the profile: field → what it states.
        findings: kind → nodes.
        warns: whether a defect is no failure.
    """

    profile: str
    numerics: dict[str, Any]
    findings: dict[str, int]
    warns: bool = False
