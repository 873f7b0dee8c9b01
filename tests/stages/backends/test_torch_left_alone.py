"""An import of this project's, and its use as a library, leave torch as it is to everybody else in the process."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_fingerprint

from inductor_debug.stages.mock_backends import mock_backend

SCRIPT = torch_fingerprint.__file__


@pytest.mark.parametrize(("work", "alone"), [("import", None), pytest.param("use", "bare", marks=pytest.mark.slow)])
def test_nothing_of_torch_is_changed(work: str, alone: str | None, tmp_path: Path) -> None:
    """In fresh processes: the first tells which modules of torch come, the others have them from the start."""
    names = tmp_path / "names"
    names.write_text(_run(work))
    assert len(names.read_text().splitlines()) > 500
    by_torch = _run(alone, str(names)) if alone else ""
    assert set(_run(work, str(names)).splitlines()) <= {"", *by_torch.splitlines()}


def _run(*args: str) -> str:
    command = [sys.executable, "-W", "ignore", SCRIPT, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_change_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch_fingerprint.fingerprint()
    monkeypatch.setattr(torch._dynamo.convert_frame.ConvertFrameAssert, "__call__", lambda self: None)
    with torch._dynamo.config.patch(recompile_limit=3):
        told = torch_fingerprint.changed(before, torch_fingerprint.fingerprint())
    assert "torch._dynamo.convert_frame.ConvertFrameAssert.__call__" in told
    assert "torch._dynamo.config.recompile_limit" in told


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.compiler.disable(recursive=False)
def left_to_python(x: torch.Tensor) -> torch.Tensor:
    return doubled(x + 1)


def calling(x: torch.Tensor) -> torch.Tensor:
    return left_to_python(x) - 3


def test_other_backends_get_the_graphs_that_they_get_without_a_mock_backend() -> None:
    """By the functions on the stack torch knows that a frame is not to be compiled: none of ours may be among them."""
    torch._dynamo.reset()
    torch.compile(calling, backend="mock", options={"strict": False})(torch.ones(3))
    torch.compile(calling, backend=mock_backend, options={"strict": False})(torch.ones(3))
    torch._dynamo.reset()
    graphs: list[list[str]] = []

    def other(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append([node.name for node in gm.graph.nodes if node.op.startswith("call_")])
        return gm

    torch.compile(calling, backend=other)(torch.ones(3))
    assert graphs == [["mul"], ["sub"]]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["mock", "aot_mock", mock_backend])
def test_torchs_class_is_its_own_once_torch_compile_returned(backend: Any, fullgraph: bool) -> None:
    from torch._dynamo.convert_frame import ConvertFrameAssert

    for _ in range(2):  # by name torch looks an entry point up once
        torch.compile(calling, backend=backend, fullgraph=fullgraph)
        assert vars(ConvertFrameAssert)["__init__"].__module__ == ConvertFrameAssert.__module__
        assert ConvertFrameAssert.__init__.__code__.co_filename == inspect.getsourcefile(ConvertFrameAssert)
