"""A constrain stage's context."""

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.settings import Settings

GRAPH = GraphRecord("g0.forward", "forward", [
    NodeRecord("x", "placeholder", "x", outputs=[TensorRecord([4, 10], "float32", [10, 1], "cpu")], role="input"),
    NodeRecord("relu", "call_function", "aten.relu.default", args=[{"node": "x"}], inputs=["x"],
               outputs=[TensorRecord([4, 10], "float32", [10, 1], "cpu")]),
    NodeRecord("output", "output", "output", inputs=["relu"]),
])  # fmt: skip


def context(accel, graphs=(GRAPH,)):
    stored = MemoryArtifacts({f"capture/graphs/{graph.id}.json": graph.to_json() for graph in graphs})
    return StageContext(Settings(ModelConfig(), accel=AccelConfig(**accel)), stored)
