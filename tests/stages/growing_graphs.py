"""Graphs of any number of nodes, made up as records: Dynamo's, and the forward one that came of it.

- chain: each operation reads the one before.
- wide: a quarter of the nodes are parameters, a tenth are outputs, half of them a node's many results.
- loop: views of views; all operations stand on the same few lines.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from inductor_debug.stages.graphs.records import GETITEM, GraphRecord, NodeRecord, SourceLine, TensorRecord

LINES = 10
"""Of a loop's body."""


def tensor(*shape: int) -> TensorRecord:
    return TensorRecord(list(shape), "float32", [math.prod(shape[at + 1 :]) for at in range(len(shape))], "cpu")


def given(name: str, role: str) -> NodeRecord:
    return NodeRecord(name, "placeholder", name, outputs=[tensor(24, 24)], role=role)


def call(
    kind: str, name: str, target: str, reads: Sequence[str], line: int, module: str = "", **more: Any
) -> NodeRecord:
    """A call of either graph.

    Args:
        kind: dynamo or forward.
        name: its own.
        target: bare, ``relu``, ``mm`` or ``view``.
        reads: what it reads.
        line: its source line.
        module: its module.
        more: further fields.
    """
    source = SourceLine("net.py", line, "x = f(x)", "forward")
    full = f"torch.{target}" if kind == "dynamo" else f"aten.{target}.default"
    record: dict[str, Any] = {"flops": 24**3, "outputs": [tensor(24, 24)], "aliases": target == "view"} | more
    origins = [name] if kind == "forward" else []
    args = [{"node": read} for read in reads]
    return NodeRecord(name, "call_function", full, args, {}, list(reads), module=module, source=source,
                      origins=origins, **record)  # fmt: skip


def graph(kind: str, nodes: Sequence[NodeRecord], results: Sequence[str]) -> GraphRecord:
    output = NodeRecord("output", "output", "output", [[{"node": name} for name in results]], inputs=list(results))
    return GraphRecord(f"g0.{kind}", kind, [*nodes, output])


def chain(kind: str, count: int) -> GraphRecord:
    nodes = [given("x", "input"), given("w", "parameter")]
    for index in range(count):
        reads = [nodes[-1].name if index else "x", "w"]
        target = ("mm", "relu", "view")[index % 3]
        nodes.append(call(kind, f"call{index}", target, reads[: 2 if target == "mm" else 1], index, f"layers.{index}"))
    return graph(kind, nodes, [nodes[-1].name])


def loop(kind: str, count: int) -> GraphRecord:
    nodes = [given("x", "input")]
    for index in range(count):
        target = "relu" if index < count // 2 and index % LINES == 0 else "view"
        nodes.append(call(kind, f"call{index}", target, [nodes[-1].name], index % LINES))
    return graph(kind, nodes, [nodes[-1].name])


def wide(kind: str, count: int) -> GraphRecord:
    inputs = [given(f"w{index}", "parameter") for index in range(count // 4)]
    nodes, results = [given("x", "input"), *inputs], count // 10
    parts = [tensor(24, index % 24 + 1) for index in range(results // 2)]
    nodes.append(call(kind, "split", "split_copy", ["x"], 0, outputs=parts))
    for index, part in enumerate(parts):
        taken = call(kind, f"part{index}", "getitem", ["split"], 0, outputs=[part], aliases=True)
        nodes.append(NodeRecord(**vars(taken) | {"target": GETITEM, "args": [{"node": "split"}, index]}))
    for index in range(count - len(nodes)):
        weight = inputs[index % len(inputs)].name
        nodes.append(call(kind, f"call{index}", "mm", ["x", weight], index % 400 + 1, f"layers.{index}"))
    last = [f"part{index}" for index in range(len(parts))]
    return graph(kind, nodes, [*last, *(node.name for node in nodes[-(results - len(parts)) :])])


SHAPES: dict[str, Callable[[str, int], GraphRecord]] = {"chain": chain, "wide": wide, "loop": loop}
