"""TorchInductor's IR after fusion, taken apart by the buffers that each scheduler node writes."""

from collections.abc import Iterator


def ir_of_buffers(text: str) -> dict[str, str]:
    """Buffer → the IR of the scheduler node that writes it, of a fused one with the nodes in it.

    Args:
        text: of ``lower/GRAPH/ir_post_fusion.txt``: scheduler nodes one after the other, each begun by
            ``name: KindSchedulerNode(…)``, as ``BaseSchedulerNode.debug_str`` of torch._inductor.scheduler writes it.
    """
    found: dict[str, str] = {}
    for lines in _nodes(text.splitlines()):
        block = "\n".join(lines).rstrip()
        found |= dict.fromkeys(_written(lines), block)
    return found


def _nodes(lines: list[str]) -> Iterator[list[str]]:
    """The lines of each scheduler node that is in no other."""
    node: list[str] = []
    before = ""
    for line in lines:
        name, colon, kind = line.partition(": ")
        begins = colon and "SchedulerNode(" in kind and name.isidentifier() and not before.endswith("] =")
        if begins and node:
            yield node
            node = []
        if begins or node:
            node.append(line)
        before = line.rstrip()
    if node:
        yield node


def _written(lines: list[str]) -> Iterator[str]:
    """Names of the buffers among a node's own outputs: lines ``    buf0: ComputedBuffer``."""
    own = False
    for line in lines:
        if line.endswith(".outputs = ["):
            own = True
        elif line == "]":
            return
        elif own:
            name, colon, _ = line.strip().partition(": ")
            if colon and name.isidentifier():
                yield name
