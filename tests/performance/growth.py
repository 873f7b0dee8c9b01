"""How a stage's CPU time and memory grow with the graph: a chain, a wide graph and a loop of 100 to 20,000 nodes.

Usage: ``python tests/performance/growth.py [STAGE …] [--sizes 100 1000 10000 20000] [--rounds 5] [--no-memory]``.
For each stage it prints a row a shape and size: CPU milliseconds (the least of the rounds, sizes in turn) and the peak
of the memory that Python allocates, each with its exponent: that of the number of nodes between the size before and
this one. The graphs are made up (``tests/stages/growing_graphs.py``): no model runs and torch is not imported.

A stage is one function of the two records and a folder: ``STAGES``.
"""

import argparse
import functools
import gc
import itertools
import logging
import math
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from inductor_debug.models.config import ModelConfig
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.query.check_command import read_graphs
from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.constrain.config import ConstrainConfig
from inductor_debug.stages.constrain.stage import ConstrainStage
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.settings import Settings

sys.path.append(str(Path(__file__).parents[1] / "stages"))
from growing_graphs import SHAPES

SIZES = (100, 1_000, 10_000, 20_000)
Graphs = tuple[GraphRecord, GraphRecord]
Stage = Callable[[Graphs, Path], object]

RULES = AccelConfig(
    alignment=16,
    alignment_dims="all",
    max_rank=1,
    max_size=64,
    tile=[32, 32],
    dtypes=["float16"],
    layout="channels_last",
    max_tensor_bytes=256,
    max_peak_bytes=256,
    denied=["aten.relu", "aten.mm"],
    dynamic_shapes="static",
    rules=[Rule("alignment", dims="contraction", value=32), Rule("dtype", operations=["aten.mm"], value=["float16"])],
)
"""Ten rules. Size, layout and dynamic_shape are kept; the others are broken, all but memory_peak by many nodes."""


def write_records(graphs: Graphs, folder: Path) -> None:
    """What capture writes of its graphs."""
    for record in graphs:
        path = folder / files.GRAPH.at(record.id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(path.name, record.to_json()))


def read_records(graphs: Graphs, folder: Path) -> None:
    """What ``inductor-debug check`` reads, checked as what others may have made."""
    read_graphs(folder)


def constrain(graphs: Graphs, folder: Path) -> None:
    """The whole stage: it reads the stored graphs, checks them and writes its tables."""
    _constrain(folder, RULES)


def constrain_strictly(graphs: Graphs, folder: Path) -> None:
    """The same with a strict profile: it writes twenty reproductions as well, and runs none."""
    _constrain(folder, replace(RULES, strict=True))


def _constrain(folder: Path, accel: AccelConfig) -> None:
    context = StageContext(Settings(ModelConfig(), accel=accel), StoredFolder(folder))
    for name, content in ConstrainStage(ConstrainConfig(verified_repros=0)).run(context).artifacts.items():
        encode(name, content)


STAGES: dict[str, Stage] = {"write": write_records, "read": read_records, "constrain": constrain,
                            "strict": constrain_strictly}  # fmt: skip
"""What is measured, by name; each finds the records in the folder, as capture stores them."""


def cpu_seconds(work: Callable[[], object]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def peak_bytes(work: Callable[[], object]) -> int:
    """The most that Python allocates at once beyond what there is."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measured(
    stage: Stage, cases: Sequence[tuple[Graphs, Path]], rounds: int, memory: bool
) -> Iterator[tuple[float, int]]:
    """CPU seconds and peak bytes at each size.

    Args:
        stage: what is run.
        cases: the graphs of each size, and the folder where they are stored.
        rounds: each takes the sizes in turn; of the seconds the least counts.
        memory: whether peaks are measured, which takes several times as long as a round; else they are 0.
    """
    stage(*cases[0])  # what is imported and known once
    works = [functools.partial(stage, graphs, folder) for graphs, folder in cases]
    seconds = [[cpu_seconds(work) for work in works] for _ in range(rounds)]
    peaks = map(peak_bytes, works) if memory else itertools.repeat(0, len(works))
    return zip(map(min, zip(*seconds, strict=True)), peaks, strict=True)


def exponent(before: float, now: float, growth: float) -> str:
    """Of a growth; nothing where it was not measured."""
    return "" if not now else f"{math.log(now / before) / math.log(growth):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", default=list(STAGES), help=", ".join(STAGES))
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-memory", action="store_true", help="CPU time alone")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"{'stage':<10} {'graph':<6} {'nodes':>7} {'CPU ms':>9} {'exponent':>8} {'peak MiB':>9} {'exponent':>8}")
    with tempfile.TemporaryDirectory() as root:
        for shape in options.shapes:
            cases = []
            for size in options.sizes:
                graphs = SHAPES[shape]("dynamo", size), SHAPES[shape]("forward", size)
                cases.append((graphs, Path(root) / shape / str(size)))
                write_records(*cases[-1])
            for name in options.stages:
                before: tuple[int, float, int] | None = None
                found = measured(STAGES[name], cases, options.rounds, not options.no_memory)
                for size, (seconds, peak) in zip(options.sizes, found, strict=True):
                    exponents = ["", ""]
                    if before is not None:
                        growth = size / before[0]
                        exponents = [exponent(before[1], seconds, growth), exponent(before[2], peak, growth)]
                    shown = f"{peak / 2**20:.2f}" if peak else ""
                    print(f"{name:<10} {shape:<6} {size:>7,} {seconds * 1e3:>9.1f} {exponents[0]:>8} "
                          f"{shown:>9} {exponents[1]:>8}", flush=True)  # fmt: skip
                    before = size, seconds, peak


if __name__ == "__main__":
    main()
