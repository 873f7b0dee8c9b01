"""One denied call is one finding, however many graphs show it: in every total, table and message."""

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
import torch.nn.functional as F
from constrain_graphs import graph, placeholder, rules
from mock_models import clean, refused
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.pipeline.query import check_command
from inductor_debug.stages.accelerators.config import AccelConfig, Waiver
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.constrain import section
from inductor_debug.stages.constrain.config import ConstrainConfig
from inductor_debug.stages.constrain.grid import check_grid
from inductor_debug.stages.constrain.stage import ConstrainStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.mock_backends import aot_mock_backend
from inductor_debug.stages.rules.counting import Storages
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.repros import write_repros
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations
from inductor_debug.stages.settings import Settings

__all__ = ["clean"]  # an autouse fixture


class Net(nn.Module):
    """Two activations on one line, a layer that is called twice, and an attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = F.relu(self.layer(x)) + F.relu(-x)
        x = x[None, None, None]  # five dimensions: no kernel of torch's takes all of it
        return F.scaled_dot_product_attention(x, x, x)


def graphs(mode: str = "inference", module: nn.Module | None = None) -> list[GraphRecord]:
    """As a stored run gives them: sorted by their file's name."""
    torch.manual_seed(0)
    module = (module or Net()).train(mode == "training")
    case = Case("net", module, (torch.randn(4, 8),), {}, mode, torch.float32, torch.device("cpu"))
    return sorted(capture(case).graphs, key=lambda graph: graph.id)


def denying(*names: str, **more: Any) -> AccelConfig:
    return AccelConfig(denied=list(names), strict=True, **more)


def kinds(rows: list[Violation]) -> list[str]:
    return [row.graph.partition(".")[2] for row in rows]


def test_a_denied_call_is_one_finding_with_a_row_a_graph() -> None:
    found = check(graphs(), denying("aten.relu"))
    assert len(found) == 8  # two on one line, twice, in Dynamo's graph and in the forward graph
    assert [kinds(finding) for finding in found.findings] == [["dynamo", "forward"]] * 4
    assert found.summary().total == 4 and found.summary().by_rule == {"operation": 4}
    assert found.by_severity == {"error": 4}


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        (("aten.addmm", "aten.mm"), [["forward", "backward"], ["forward", "backward", "backward"]]),
        (("aten.relu", "aten.threshold_backward"), [["dynamo", "forward"], *[["dynamo", "forward", "backward"]] * 3]),
        (("aten.bmm",), [["forward"] * 2 + ["backward"] * 4]),
    ],
)
def test_forward_and_backward_of_one_call_are_one_finding(denied: tuple[str, ...], expected: list[list[str]]) -> None:
    """What a user changes is the call, with or without a name of its own in Dynamo's graph."""
    found = check(graphs("training"), denying(*denied))
    assert sorted(map(kinds, found.findings)) == sorted(expected)


def test_rows_of_tensors_are_findings_of_their_own() -> None:
    found = check(graphs("training"), AccelConfig(alignment=16))
    assert len(found.findings) == len(found) > 4


def test_two_rules_of_different_effect_are_two_findings() -> None:
    both = rules(rule="operation", effect="fallback", value=["aten.relu"])
    rule = {"rules": [*both["rules"], *rules(rule="operation", effect="reject", value=["aten.relu"])["rules"]]}
    found = check(graphs(), AccelConfig(**rule))
    assert Counter(group[0].effect for group in found.findings) == {"fallback": 4, "reject": 4}


def test_calls_in_the_body_of_an_operator_are_findings_by_their_line() -> None:
    class Chosen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def large(x: torch.Tensor) -> torch.Tensor:
                return x.clone().relu_()

            def small(x: torch.Tensor) -> torch.Tensor:
                return F.relu(x) + 1

            return torch.cond(x.sum() > 0, large, small, (x,))

    found = check(graphs(module=Chosen()), denying("aten.relu"))
    assert sum("dynamo" in kinds(finding) for finding in found.findings) == len(found.findings) == 2


def test_a_finding_is_waived_where_each_row_is() -> None:
    waivers = [Waiver(rule="operation", target="torch.nn.functional.relu", reason="the host does it")]
    one = check(graphs(), denying("aten.relu", waivers=waivers))
    assert one.by_severity == {"error": 4} and sum(row.severity == "waived" for row in one) == 4
    waivers = [Waiver(rule="operation", target="*relu*", reason="the host does it")]
    both = check(graphs(), denying("aten.relu", waivers=waivers))
    assert both.by_severity == {"waived": 4} and not both.failed


def test_every_total_counts_findings(tmp_path: Path) -> None:
    stored = MemoryArtifacts({f"capture/graphs/{graph.id}.json": graph.to_json() for graph in graphs()})
    settings = Settings(ModelConfig(), accel=denying("aten.relu"))
    result = ConstrainStage(ConstrainConfig(verified_repros=0)).run(StageContext(settings, stored))
    told, *figures = result.message.split("\n")
    assert told.startswith(
        "The model does not fit the profile none: 4 violations of the rule operation. These operations are not "
        "allowed: aten.relu. The profile is strict, "
    )
    assert "1 reproduction in repros/, 0 run and seen to show it." in figures
    assert result.summary["violations"].total == 4
    assert result.artifacts[files.BY_RULE.path]["findings"].tolist() == [4]
    (repro,) = result.summary["repros"]
    assert repro.violations == 4
    table = pandas.read_csv(io.BytesIO(encode(files.VIOLATIONS.path, result.artifacts[files.VIOLATIONS.path])))
    assert len(table) == 8 and table.groupby("finding").size().tolist() == [2] * 4

    stored.add(result)
    shown = section.violations(stored, result.summary["violations"], 0)
    assert shown is not None and shown["total"] == 4 and shown["by_severity"] == {"error": 4}
    assert sum(line.findings for line in shown["top_lines"]) == 4

    run = tmp_path / "run"
    for name, content in stored.content.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(encode(name, content))
    asked = check_command.Asked("none", ["denied=[aten.relu]", "strict=true"])
    checked = check_command.once(run, asked, tmp_path / "out")
    assert checked.table["findings"].tolist() == [4] and "4 violations" in checked.note
    assert [line.findings for line in checked.lines] == [4]
    points = check_grid(graphs(), denying("aten.relu"), {"max_rank": [6]})
    assert points["findings"].tolist() == points["findings_operation"].tolist() == [4]


def test_rows_without_an_id_are_findings_of_their_own() -> None:
    """Those of a run that an earlier version stored."""
    found = check(graphs(), denying("aten.relu"))
    stored = [row.but(finding="") for row in found]
    assert len(Violations(tuple(stored)).findings) == 8


def test_the_mock_backend_tells_and_reproduces_each_finding_once() -> None:
    options = {"profile": "none", "strict": True, "denied": ["aten.relu"], "verified_repros": 0}
    error = refused(aot_mock_backend, options, Net(), torch.randn(4, 8))
    assert "4 violations of the profile 'none':" in str(error)
    told = [line for line in str(error).splitlines() if "[operation]" in line]
    assert len(told) == 4 and all("g0.dynamo:" in line and "(also g0.forward:" in line for line in told)
    assert error.repros is not None and len(error.repros.scripts) == 1


def test_a_picture_that_cannot_be_written_leaves_the_other_its_reproduction() -> None:
    found = check(graphs(), denying("aten.relu"))
    records = [graph for graph in graphs() if graph.kind == "forward"]
    known = {(graph.id, node.name) for graph in records for node in graph.nodes}
    records.append(GraphRecord("g0.dynamo", "dynamo", []))  # its nodes are lost
    repros = write_repros(records, found, verified=0)
    assert [script.rows[0].graph for script in repros.scripts] == ["g0.forward"]
    assert {(row.graph, row.node) for row in repros.scripts[0].rows} < known and not repros.without


def test_origins_survive_json() -> None:
    (forward,) = [graph for graph in graphs() if graph.kind == "forward"]
    again = GraphRecord.from_json(json.loads(json.dumps(forward.to_json())))
    relus = [node for node in again.nodes if node.target == "aten.relu.default"]
    assert len({node.origins[0] for node in relus}) == len(relus) == 4


def test_a_backward_graphs_parameter_is_the_forwards_and_its_gradient_is_not() -> None:
    names = {"w": "parameter", "t": "tangent"}
    both = [graph(*(placeholder(name, 8, role=role) for name, role in names.items()), kind=kind)
            for kind in ("forward", "backward")]  # fmt: skip
    storages = Storages(both)
    assert storages.of("g0.backward/w") == storages.of("g0.forward/w") == ("g0.forward/w", 32)
    assert storages.of("g0.backward/t") == ("g0.backward/t", 32)
