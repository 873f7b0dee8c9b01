"""The corpus of failures (``tests/trials/minified_failures.py``): what it has, what a second start does, its tables."""

import json
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import fx

sys.path.append(str(Path(__file__).parents[2] / "trials"))
import minified_table
from minified_corpus import KINDS, read
from minified_failures import CLASSES, Rows, Tasks
from minified_torch import TorchMinifier

from inductor_debug.stages.localize.runs.regions import Seen

OURS = {"failure": "signal 6", "operations": 1, "before": 70, "minimal": True, "verified": True, "reason": "",
        "message": "", "seconds": 9.0, "executed": 12, "bytes": 2000, "at": False, "alike": True}  # fmt: skip
THEIRS = {"failure": "signal 6", "operations": 2, "queries": 40, "others": 1, "seconds": 20.0, "why": "", "alike": True}


def row(case: str, by: str, **fields: object) -> dict[str, object]:
    return {"case": case, "by": by} | (OURS if by == "ours" else THEIRS) | fields


def test_the_corpus_has_what_is_asked_for() -> None:
    plants = read()
    assert len({plant.name for plant in plants}) == len(plants) >= 60
    assert {plant.of for plant in plants} == set(CLASSES) and {plant.kind for plant in plants} == set(KINDS)
    assert {"resnet18", "bert", "ssm", "gpt2", "swin"} <= {plant.model for plant in plants}
    assert {plant.mode for plant in plants} == {"inference", "training"}
    assert sum(plant.symbolic for plant in plants) >= len(plants) / 4
    full = Counter(plant.model for plant in plants if plant.size == "full")
    assert sum(full.values()) >= len(plants) / 4 and all(full[name] for name in ("resnet18", "bert", "ssm"))


def test_each_failure_of_a_graph_names_its_operation() -> None:
    for plant in read():
        if plant.of != "storm":
            assert plant.graph in ("forward", "backward") and all(name.startswith("aten.") for name in plant.names), (
                plant
            )
            assert len(plant.names) == 1 + (plant.kind in ("fused", "joined")), plant
            backend = plant.backend()
            assert callable(backend) or backend == "inductor"


def test_a_second_start_does_what_is_left(tmp_path: Path) -> None:
    first, second = read()[:2]
    path = tmp_path / "rows.jsonl"
    rows = Rows(path)
    tasks = Tasks([first, second], ["ours", "torch"], rows, again=False)
    assert tasks.take() == (first, "ours") and tasks.take() == (second, "ours") and tasks.take() is None
    rows.add(row(first.name, "ours"))
    assert tasks.take() == (first, "torch")
    rows.add({"case": second.name, "by": "ours", "raised": "OSError: no"})
    left = Tasks([first, second], ["ours"], Rows(path), again=False)
    assert len(left) == 0 and len(path.read_text().splitlines()) == 2
    assert Tasks([first, second], ["ours"], Rows(path), again=True).take() == (second, "ours")
    assert json.loads(path.read_text().splitlines()[0])["operations"] == 1


def test_the_table_counts_what_is_larger_or_other() -> None:
    plants = [plant for plant in read() if plant.of == "crash"][:3]
    one, two, three = (plant.name for plant in plants)
    rows = [row(one, "ours"), row(one, "torch"), row(two, "ours", operations=5), row(two, "torch"),
            row(three, "ours", verified=False), row(three, "torch", failure="", operations=0, alike=False,
                                                    why="time was up"),
            row(one, "torch alone", failure="error OSError", alike=False)]  # fmt: skip
    found = minified_table.table(rows, plants)
    assert "| crash | 3 | 3 | 2 | 3 | 1, at most 5 |" in found
    assert "a part of the same class in 2: of these the tool has more operations in 1, fewer in 1" in found
    assert "12 by the tool, 40 asked for" in found and "was another failure in 1 of 1" in found
    assert "not verified" in found and "none, time was up" in found


def test_torchs_minifier_says_what_it_took_and_what_else_it_met() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.sin(torch.cos(x + 1)) * 2)

    module = fx.symbolic_trace(program)
    seen = Seen("g0.forward", module.graph, module, {"x": torch.ones(3)})

    def shows(part: fx.GraphModule, inputs: object) -> str | None:
        targets = {node.target for node in part.graph.nodes}
        return "signal 6" if torch.sin in targets else "error OSError" if torch.cos in targets else None

    alike = TorchMinifier(seen, shows, "signal 6".__eq__, 60.0).run()
    assert (alike.operations, alike.failure, alike.why) == (1, "signal 6", "") and alike.queries > 1 and alike.others
    late = TorchMinifier(seen, shows, "signal 6".__eq__, -1.0).run()
    assert (late.failure, late.why) == ("", "time was up")
