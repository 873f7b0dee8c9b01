"""Graphs made by hand, for the rules' tests."""

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine, TensorRecord
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.layout import strides_of


def tensor(*shape, dtype="float32", stride=None, **more):
    sizes = [size if isinstance(size, int) else 1 for size in shape]
    stride = strides_of(sizes, "contiguous") if stride is None else stride
    return TensorRecord(list(shape), dtype, list(stride), "cpu", **more)


def placeholder(name, *shape, role="input", **more):
    return NodeRecord(name, "placeholder", name, outputs=[tensor(*shape, **more)], role=role)


def call(name, target, inputs, *outputs, **more):
    args = [{"node": item} if isinstance(item, str) else item for item in inputs]
    read = [item for item in inputs if isinstance(item, str)]
    op = more.pop("op", "call_function")
    return NodeRecord(name, op, target, args=args, inputs=read, outputs=list(outputs),
                      source=SourceLine("net.py", 7, "y = f(x)"), **more)  # fmt: skip


def graph(*nodes, kind="forward", symbols=None):
    output = NodeRecord("output", "output", "output", inputs=[nodes[-1].name])
    return GraphRecord(f"g0.{kind}", kind, [*nodes, output], symbols or {})


def found(graphs, **accel):
    return list(check(graphs, AccelConfig(**accel)))


def places(rows):
    return [(row.node, row.operand, row.measured) for row in rows]


def rules(**fields):
    """The fields of an accelerator with that one rule."""
    return {"rules": [Rule(**fields)]}


LINEAR = graph(
    placeholder("x", 4, 100),
    placeholder("ids", 4, dtype="int64"),
    placeholder("w", 100, 24, role="parameter"),
    call("mm", "aten.mm.default", ["x", "w"], tensor(4, 24), flops=2 * 4 * 100 * 24),
    call("gather", "aten.index.Tensor", ["mm", "ids"], tensor(4, 24), flops=0),
    call("add", "aten.add.Tensor", ["gather", "mm"], tensor(4, 24), flops=2 * 4 * 24),
)
"""A product with a weight, a gather by ids, and a sum."""
