"""At which kernel a compiler stopped."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from inductor_debug.stages.artifacts.lowering import MappedNode, NotCompiled, Provenance
from inductor_debug.stages.torch_internals.generated_kernels import Kernel


def not_compiled(
    graph: str, provenance: Provenance, nodes: Iterable[MappedNode], kernels: Sequence[Kernel], message: str
) -> NotCompiled:
    """The record of a graph that did not compile.

    Args:
        graph: its id.
        provenance, nodes: what its kernels compute, as far as it was generated.
        kernels: with their code.
        message: of the error.
    """
    kernel = failing_kernel(kernels, message)
    launch = next((item for item in provenance.kernels if kernel is not None and item.name == kernel.name), None)
    if kernel is None or launch is None:
        return NotCompiled(graph=graph)
    computed = set(launch.nodes)
    calls = [node.original or node.target for node in nodes if node.node in computed]
    return NotCompiled(
        graph=graph,
        kernel=kernel.name,
        file=f"kernels/{kernel.file}",
        statement=quoted(kernel.source, message),
        nodes=launch.nodes,
        operations=list(dict.fromkeys(calls)),
        modules=launch.modules,
        sources=launch.sources,
    )


def failing_kernel(kernels: Sequence[Kernel], message: str) -> Kernel | None:
    """The one kernel that a compiler's message is about: it names it, or a file that holds its code; else None."""
    words = [word.strip("':,\"") for word in message.split()]
    named = [kernel for kernel in kernels if kernel.name in message]
    if len(named) != 1:
        texts = [_text(word) for word in dict.fromkeys(words) if word.endswith((".cpp", ".cu", ".py"))]
        named = [kernel for kernel in kernels if any(kernel.body and kernel.body in text for text in texts)]
    return named[0] if len(named) == 1 else None


def quoted(source: str, message: str) -> str:
    """The first line of a source that a compiler's message holds; lines of braces, which any source has, are none."""
    lines = {line.strip() for line in message.replace("|", "\n").splitlines()}
    return next((line.strip() for line in source.splitlines() if len(line.strip()) > 3 and line.strip() in lines), "")


def _text(path: str) -> str:
    """A source file's text; "" where it is gone."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
