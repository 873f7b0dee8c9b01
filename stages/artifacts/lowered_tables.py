"""Rows of the tables that lower stores, as :mod:`stages.artifacts.tables` has those of other stages."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class KernelRow:
    """lower/GRAPH/kernels.csv: one row a launch, for a spreadsheet; ``provenance.json`` has the same in full.

    Attributes:
        name: of the kernel.
        handle: of the launch, also in the generated code, as a comment; None where no launch was recorded.
        kind: ``cpp``, ``triton``, …; ``extern``: a library's or ATen's function.
        file: with its source, relative to the graph's folder; None for an extern kernel.
        nodes: post-grad nodes that it computes, by spaces.
        modules: of what it computes, by spaces.
        source: the line that most of the launch came from (``main`` of ``provenance.json``, with the share).
        lines: how many source lines the operations that it computes have.
        bytes_read, bytes_written: of its buffers at most; None where a size is not known.
    """

    name: str
    handle: int | None
    kind: str
    file: str | None
    nodes: str
    modules: str
    source: str
    lines: int
    bytes_read: int | None
    bytes_written: int | None


@dataclass(frozen=True)
class FusionRow:
    """lower/GRAPH/fusions.csv: a decision about two operations.

    Attributes:
        first, second: as the IR names them.
        fused: whether they are one kernel.
        reason: why they were not fused; "" where they were.
        times: how often.
        first_nodes, second_nodes: the post-grad nodes behind them, by spaces.
    """

    first: str
    second: str
    fused: bool
    reason: str
    times: int
    first_nodes: str
    second_nodes: str


@dataclass(frozen=True)
class CandidateRow:
    """lower/GRAPH/autotuning.csv: a candidate that was timed, the fastest of each operation first.

    Attributes:
        operation: as the IR names it.
        inputs: shapes and dtypes of what it reads, by spaces.
        choice: the candidate: a library's function, or a template with its parameters.
        milliseconds: of one call; None for a candidate that failed.
        fastest: whether it is the fastest of its operation.
    """

    operation: str
    inputs: str
    choice: str
    milliseconds: float | None
    fastest: bool


@dataclass(frozen=True)
class ValueRow:
    """lower/values.csv: one row a printed value, in the order of printing.

    Attributes:
        graph, call: graph id, and the how many-th run of that graph in the step.
        launch: number of the launch within the run; None for a graph's inputs.
        kernel, handle: what is launched, as in ``kernels.csv``; no handle where the launch was not found there.
        when: ``before`` or ``after``, or ``input``.
        buffer: as in ``output_code.cpp``.
        written: False where nothing has written the buffer's memory yet, and what it holds means nothing; None where
            the launch was not found in the generated code, and where no buffer is told of.
        holds: whose value the memory holds: another buffer's where its memory is reused, as by a kernel that works in
            place.
        writer: ``kernel:handle`` of the launch that wrote it; "" for a graph's inputs.
        elements, dtype, shape, stride, device: of the value.
        mean, min, max: in float32 as the printer computes them (level 2), in float64 of the saved tensor (level 1);
            None of a complex one.
        state: ``nan``, ``inf`` or ``finite``; "" where there is nothing to tell it by.
        born: of a NaN or an infinity ``kernel:handle`` of the launch in which it was born, or the name of what the
            graph was given; several (``A:1 or B:2``) where it is not known in which; "" where nothing is known.
        value: of an integer argument.
        file: the safetensors file that holds it (level 1), under ``WHEN.BUFFER``.
        note: why there is no file.
    """

    graph: str
    call: int
    launch: int | None
    kernel: str
    handle: int | None = field(default=None, kw_only=True)
    when: str
    buffer: str
    written: bool | None
    holds: str = ""
    writer: str = ""
    elements: int | None = None
    dtype: str = ""
    shape: str = ""
    stride: str = ""
    device: str = ""
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    state: str = field(kw_only=True)
    born: str = ""
    value: str = ""
    file: str = ""
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """One row of ``lower/emulation.csv``: one kind of finding at one node.

    Attributes:
        graph, node, target, module, source: as in ``constrain/violations.csv``.
        kind: one of :data:`stages.emulation.kinds.KINDS`.
        count: elements concerned, in the worst run; None for ``fallback`` and ``not_emulated``.
        elements: elements of the tensor.
        worst: the largest magnitude concerned; None where there is none.
        bytes: of the tensors that the host reads and writes (``fallback``), as in ``capture/graphs``.
        flops: of the operation, where a formula is known (``fallback``).
        message: one sentence.
    """

    graph: str
    node: str
    target: str
    module: str
    source: str
    kind: str
    count: int | None = None
    elements: int | None = None
    worst: float | None = None
    bytes: int | None = None
    flops: int | None = None
    message: str = ""
