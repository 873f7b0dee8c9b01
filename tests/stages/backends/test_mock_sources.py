"""Lines of violations in torch's own layers: the model's line that calls them, or that there is none."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from mock_models import clean, inner, refused
from torch import nn
from torch.utils.checkpoint import checkpoint

from inductor_debug.models.case import Case
from inductor_debug.models.torch_text import MACHINERY
from inductor_debug.stages.backends.strict_error import ProfileViolated
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.records import NO_LINE, SourceLine
from inductor_debug.stages.graphs.sources import TORCH_ROOT, SourceFinder
from inductor_debug.stages.mock_backends import aot_mock_backend, mock_backend

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


def line_of(kind: type[nn.Module]) -> str:
    """The last line of its forward."""
    lines, first = inspect.getsourcelines(kind.forward)
    return f"{__file__}:{first + len(lines) - 1}"


def first_repros(error: ProfileViolated) -> list[tuple[str, Any]]:
    """Content and row of the scripts of violations that have a line."""
    assert error.repros is not None
    found = [(error.files[item.name], item.rows[0]) for item in error.repros.scripts]
    lined = [(text, row) for text, row in found if row.source]
    assert lined
    return lined


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
    told = str(error)
    assert str(torch.__path__[0]) not in told  # a line in torch is none of the model's
    assert f"  (in the module 1.1, {NO_LINE})" in told and "  at " not in told
    assert all(f", module {row.module}, {NO_LINE}" in script for script, row in first_repros(error))


def test_the_lines_are_those_of_a_capture() -> None:
    model = layers().requires_grad_(False)
    error = refused(aot_mock_backend, STRICT, model, torch.randn(3, 20))
    case = Case("layers", model, (torch.randn(3, 20),), {}, "inference", torch.float32, torch.device("cpu"))
    (forward,) = [graph for graph in capture(case).graphs if graph.id == "g0.forward"]
    captured = {node.name: str(node.source) for node in forward.nodes}
    rows = [row for row in error.violations if row.graph == "g0.forward"]
    assert rows and {row.node: row.source for row in rows} == {row.node: captured[row.node] for row in rows}


class Checkpointed(Mine):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.layers, x, use_reentrant=False)


class InPython(Mine):
    """Dynamo leaves its forward to Python, and compiles what it calls."""

    @torch._dynamo.disable(recursive=False)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("kind", [Mine, Checkpointed, InPython])
def test_layers_of_torchs_have_the_line_of_the_model_that_calls_them(kind: type[Mine], mode: str, backend: Any) -> None:
    model = kind().requires_grad_(mode == "training")
    error = refused(backend, STRICT, model, torch.randn(3, 20))
    assert {row.source for row in error.violations} - {""} == {line_of(kind)}
    assert f"  at {line_of(kind)}" in str(error)


class Regional(Mine):
    """Compiles its layers by themselves, so that its own forward is never traced."""

    def __init__(self, backend: Any) -> None:
        super().__init__()
        self.layers = torch.compile(self.layers, backend=backend, options=STRICT)  # type: ignore[assignment]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * 2


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_layers_that_are_compiled_by_themselves_have_it_too(mode: str, backend: Any) -> None:
    model = Regional(backend).requires_grad_(mode == "training")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        model(torch.randn(3, 20))
    error = inner(caught)
    assert isinstance(error, ProfileViolated)
    assert {row.source for row in error.violations} - {""} == {line_of(Regional)}


def test_frames_of_what_runs_a_model_are_no_lines_of_it() -> None:
    finder, file = SourceFinder(), f"{TORCH_ROOT}{MACHINERY[0]}_lazy_graph_module.py"
    machinery = SourceLine(file, 122, "", "__call__")
    assert finder.own_frame([machinery]) is None
    optimizer = SourceLine(f"{Path(torch.__file__).parent}/optim/sgd.py", 10, "", "step")
    assert finder.own_frame([machinery, optimizer, machinery]) == optimizer
