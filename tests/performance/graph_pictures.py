"""CPU time of drawing every graph of stored captures.

Usage: ``python tests/performance/graph_pictures.py RUN [RUN …] [--rounds 5]``, a RUN being a run's folder, e.g. of
``python -m pipeline model=bert mode=training stages=[capture]``. Prints JSON: for each graph its nodes, the median CPU
seconds of its picture, and the picture's boxes, size in pixels and bytes. Torch is not imported.
"""

import argparse
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

from inductor_debug.stages.graph_pictures import draw_graph
from inductor_debug.stages.graphs.records import GraphRecord


def measure(file: Path, rounds: int) -> dict[str, Any]:
    """Figures of one graph's picture."""
    record = GraphRecord.from_json(json.loads(file.read_text()))
    seconds, picture = [], ""
    for _ in range(rounds):
        began = time.process_time()
        picture = draw_graph(record)
        seconds.append(time.process_time() - began)
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', picture)
    assert size is not None
    return {
        "graph": record.id,
        "nodes": len(record.nodes),
        "cpu_s": round(statistics.median(seconds), 3),
        "boxes": picture.count("data-nodes="),
        "width": float(size[1]),
        "height": float(size[2]),
        "bytes": len(picture.encode()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs with a capture")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found = {
        run.name: [measure(file, options.rounds) for file in sorted((run / "capture/graphs").glob("*.json"))]
        for run in options.runs
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
