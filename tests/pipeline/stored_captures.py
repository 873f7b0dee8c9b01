"""Stored runs with captured graphs."""

import json
from pathlib import Path

from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord


def stored_run(folder: Path, width: int, target: str = "aten.relu.default") -> Path:
    """A run's folder with one captured graph, as capture stores it."""
    x = TensorRecord([4, width], "float32", [width, 1], "cpu")
    nodes = [
        NodeRecord("x", "placeholder", "x", outputs=[x], role="input"),
        NodeRecord("y", "call_function", target, args=[{"node": "x"}], inputs=["x"], outputs=[x], flops=4 * width),
        NodeRecord("output", "output", "output", inputs=["y"]),
    ]
    (folder / "capture/graphs").mkdir(parents=True)
    graph = GraphRecord("g0.forward", "forward", nodes).to_json()
    (folder / "capture/graphs/g0.forward.json").write_text(json.dumps(graph))
    (folder / ".hydra").mkdir()
    (folder / ".hydra/config.yaml").write_text("accel: {name: mine, alignment: 8}\n")
    (folder / "run.log").write_text("")
    return folder
