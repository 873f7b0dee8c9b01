"""A run's graphs and what is known of their nodes, as Model Explorer reads them.

Graphs are a ``GraphCollection``, node data a file for each kind, graph → node → value. Source of both:
https://github.com/google-ai-edge/model-explorer (``graph_builder.py``, ``node_data_builder.py``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.stages.formatting import place
from inductor_debug.stages.graphs.records import NodeRecord, TensorRecord
from inductor_debug.stages.report.explorer.layers import KERNELS, Layer, layers
from inductor_debug.stages.report.explorer.marks import Error, Marks, marks
from inductor_debug.stages.stored_run import Row, StoredRun

GRAPHS = "graphs.json"
_RED, _GREEN, _AMBER = "#f3b4ae", "#b9e2bf", "#f5dca0"
_HEAT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e8710a"}]


def model_explorer(run: StoredRun) -> dict[str, Any]:
    """File name → content: the graphs, and node data where something of its kind is known.

    Returns:
        ``graphs.json``, and of ``violations.json`` (how many findings a node has), ``errors.json`` (its error over its
        own noise floor), ``times.json`` (microseconds of a step) and ``flops.json`` those that have values.
    """
    shown, _ = layers(run.artifacts)
    if not shown:
        raise run.lacks("graphs", "capture")
    collection = {"label": visible(run_id(run.folder)), "graphs": [_graph(layer) for layer in shown],
                  "graphSorting": "name_asc"}  # fmt: skip
    found: dict[str, Any] = {GRAPHS: [collection]}
    for name, content in _data(shown, marks(shown, run.artifacts)).items():
        if content:
            found[name] = content
    return found


def _graph(layer: Layer) -> Row:
    return {"id": layer.id, "nodes": [_node(layer, node) for node in layer.record.nodes]}


def _node(layer: Layer, node: NodeRecord) -> Row:
    names = layer.record.by_name
    sources = [name for name in node.inputs if name in names]
    told = {"operator": node.target, "module": node.module, "line": place(layer.lines[node.name])
            if node.name in layer.lines else "", "role": node.role,
            "came from": ", ".join(name for _, name in layer.up.get(node.name, []))}  # fmt: skip
    label = node.name if layer.level == KERNELS or node.op in ("placeholder", "get_attr") else node.target
    return {
        "id": node.name,
        "label": visible(label),
        "namespace": visible(node.module).replace("/", "_").replace(".", "/"),
        "attrs": [{"key": key, "value": visible(str(value))} for key, value in told.items() if value],
        "incomingEdges": [{"sourceNodeId": name, "sourceNodeOutputId": "0", "targetNodeInputId": str(index)}
                          for index, name in enumerate(sources)],
        "outputsMetadata": [_output(index, tensor) for index, tensor in enumerate(node.outputs)],
    }  # fmt: skip


def _output(index: int, tensor: TensorRecord) -> Row:
    shape = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    return {"id": str(index), "attrs": [{"key": "shape", "value": shape}]}


def _data(shown: Sequence[Layer], found: Marks) -> dict[str, Row]:
    """File name → graph → node data."""
    errors = {key: error for key, error in found.errors.items() if error.ratio is not None}
    return {
        "violations.json": _by_graph(shown, found.findings, "violations of the profile", len, lambda each: _AMBER),
        "errors.json": _by_graph(shown, errors, "error over its own noise floor", lambda error: error.ratio,
                                 _colors(errors.values())),
        "times.json": _by_graph(shown, found.times, "microseconds of a step", lambda each: each[0]),
        "flops.json": _by_graph(shown, found.flops, "FLOPs", lambda each: each),
    }  # fmt: skip


def _colors(errors: Iterable[Error]) -> Callable[[Error], str]:
    """Red for what is wrong by itself: where some operations are known to be, a value beside one is not."""
    known = any(error.culprit for error in errors)

    def color(error: Error) -> str:
        if error.state == "right":
            return _GREEN
        return _AMBER if known and not error.culprit else _RED

    return color


def _by_graph(
    shown: Sequence[Layer],
    known: Mapping[tuple[str, str], Any],
    name: str,
    value: Callable[[Any], Any],
    color: Callable[[Any], str] | None = None,
) -> Row:
    data: Row = {}
    for layer in shown:
        results = {node: {"value": value(each)} | ({"bgColor": color(each)} if color else {})
                   for (id, node), each in known.items() if id == layer.id}  # fmt: skip
        if results:
            data[layer.id] = {"name": name, "results": results} | ({} if color else {"gradient": _HEAT})
    return data
