"""Lines of violations in models that are torch's own layers: those of the layers, as capture has them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from mock_models import clean, refused
from torch import nn

from models.case import Case
from stages.capture.compilation import capture
from stages.capture.sources import MACHINERY, SourceFinder
from stages.graphs import SourceLine
from stages.lower import aot_mock_backend, mock_backend

__all__ = ["clean"]  # an autouse fixture

STRICT = {"profile": "none", "strict": True, "alignment": 16, "verified_repros": 0}


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(20, 10), nn.Sequential(nn.ReLU(), nn.Linear(10, 3)), nn.Softmax(-1))


class Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * 2


def lines_by_target(rows: Any) -> dict[str, set[str]]:
    return {target: {row.source for row in rows if row.target == target} for target in {row.target for row in rows}}


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend, "mock", "aot_mock"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_sequential_of_torchs_layers_has_their_lines(backend: Any, mode: str) -> None:
    x = torch.randn(3, 20, requires_grad=mode == "training")
    model = layers() if mode == "training" else layers().requires_grad_(False)
    error = refused(backend, STRICT, model, x)
    finder = SourceFinder()
    known = {str(finder.forward_of(kind)) for kind in (nn.Linear, nn.ReLU, nn.Softmax)}
    assert {row.source for row in error.violations} <= known | {""} and len(error.violations) > 4
    assert "_lazy_graph_module" not in str(error)


def test_the_lines_are_those_of_a_capture() -> None:
    model = layers().requires_grad_(False)
    error = refused(aot_mock_backend, STRICT, model, torch.randn(3, 20))
    case = Case("layers", model, (torch.randn(3, 20),), {}, "inference", torch.float32, torch.device("cpu"))
    (forward,) = [graph for graph in capture(case).graphs if graph.id == "g0.forward"]
    captured = {node.name: str(node.source) for node in forward.nodes}
    rows = [row for row in error.violations if row.graph == "g0.forward"]
    assert rows and {row.node: row.source for row in rows} == {row.node: captured[row.node] for row in rows}


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_a_model_of_the_users_keeps_its_own_lines(backend: Any) -> None:
    error = refused(backend, STRICT, Mine().requires_grad_(False), torch.randn(3, 20))
    line = Mine.forward.__code__.co_firstlineno + 1
    assert {row.source for row in error.violations} == {f"{__file__}:{line}"}


def test_frames_of_what_runs_a_model_are_no_lines_of_it() -> None:
    finder, machinery = SourceFinder(), SourceLine(f"{MACHINERY[0]}_lazy_graph_module.py", 122, "", "__call__")
    assert finder.own_frame([machinery]) is None
    optimizer = SourceLine(f"{Path(torch.__file__).parent}/optim/sgd.py", 10, "", "step")
    assert finder.own_frame([machinery, optimizer, machinery]) == optimizer
