"""What TorchInductor behind a mock backend fails to compile outside a run: told, and minimized in its own process."""

import gc
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
import torch._inductor.lowering
from torch import Tensor

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.mock import AotMockAdapter, MockAdapter
from inductor_debug.stages.backends.mock_options import MockOptions
from inductor_debug.stages.minify.handed import leave_script
from inductor_debug.stages.mock_backends import mock_backend

LOGGER = "inductor_debug.stages.minify.handed"


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return sampled(self.linear(x.tanh())).exp().sum()


def sampled(grid: Tensor) -> Tensor:
    """Of an operator for which TorchInductor has no code."""
    return torch.nn.functional.grid_sample(torch.ones(1, 1, 2, 2, 2), grid, align_corners=False)


@pytest.fixture
def refused() -> Iterator[None]:
    """TorchInductor refuses operators for which it has no code: an option of the process, not of torch.compile."""
    with torch._inductor.config.patch(implicit_fallbacks=False):
        yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("refused")
def test_the_smallest_program_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = {"execute": "inductor", "strict": False, "repro_dir": str(tmp_path / "new")}
    with caplog.at_level(logging.WARNING, logger=LOGGER), torch.no_grad(), pytest.raises(RuntimeError):
        torch.compile(Net(), backend=mock_backend, options=options)(torch.randn(1, 2, 2, 2, 4))
    (path,) = (tmp_path / "new").rglob("*.py")
    assert re.search(
        r"gives error MissingOperatorWithoutDecomp .*[.] 1 operation of \d+ shows it, in a fresh process too[.] Try: ",
        caplog.messages[-1],
    )
    assert caplog.messages[-1].endswith(f" Try: python {path}")
    text = path.read_text()
    assert "torch.ops.aten.grid_sampler_3d.default" in text
    assert "'implicit_fallbacks': False" in text
    assert subprocess.run([sys.executable, str(path)], capture_output=True, check=False).returncode == 0


Told = list[tuple[list[Any], bool]]


def compiled(
    function: Callable[..., Tensor], kind: type[MockAdapter] = MockAdapter
) -> tuple[Callable[..., Tensor], Told]:
    """A function compiled by TorchInductor behind a mock backend that notes what it would hand over."""
    told: Told = []
    adapter = kind(None, MockOptions("inductor"), failed=lambda _, inputs, on, __: told.append((list(inputs), on)))
    return torch.compile(function, backend=adapter.dynamo_backend()), told


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("kind", [MockAdapter, AotMockAdapter])
def test_an_error_is_told_once_with_the_inputs(kind: type[MockAdapter]) -> None:
    function, told = compiled(sampled, kind)
    x = torch.randn(1, 2, 2, 2, 3)
    with torch.no_grad(), pytest.raises(RuntimeError):
        function(x)
    assert len(told) == 1
    assert told[0][0][0] is x
    assert told[0][1] is False


@pytest.fixture
def no_backward(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """TorchInductor fails at what the backward of a sine calls."""

    def raises(*_: Any, **__: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setitem(torch._inductor.lowering.lowerings, torch.ops.aten.cos.default, raises)
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("no_backward")
def test_a_backward_that_fails_later_is_told_with_the_inputs_of_its_forward() -> None:
    function, told = compiled(lambda x: torch.sin(x).sum())
    x = torch.randn(4, requires_grad=True)
    loss = function(x)
    assert not told
    with pytest.raises(RuntimeError, match="planted"):
        loss.backward()
    assert [(inputs[0] is x, on) for inputs, on in told] == [(True, True)]


@pytest.mark.usefixtures("no_backward")
def test_inputs_that_are_gone_are_told(caplog: pytest.LogCaptureFixture) -> None:
    function, told = compiled(lambda x, y: (torch.sin(x) + y).sum())
    loss = function(torch.randn(4, requires_grad=True), torch.randn(4))
    gc.collect()
    with pytest.raises(RuntimeError, match="planted"):
        loss.backward()
    assert told[0][0][1] is None
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        leave_script(torch.fx.symbolic_trace(torch.nn.ReLU()), told[0][0], True, MockOptions("inductor"))
    assert caplog.messages[-1] == "TorchInductor failed. No script of it: inputs of the graph are gone"


def test_none_is_looked_for_where_none_is_wanted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    leave_script(graph, [torch.ones(2)], False, MockOptions("inductor", repro_dir=str(tmp_path), minify_s=0))
    assert not caplog.messages
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [-1, True, "60", float("inf")])
def test_seconds_that_are_not_valid_are_refused(given: object) -> None:
    message = re.escape(f"options.minify_s: got {given!r}; valid: a number of seconds, 0 or more. Try: ")
    with pytest.raises((ConfigurationError, RuntimeError), match=message):
        torch.compile(torch.relu, backend=mock_backend, options={"minify_s": given})(torch.ones(2))
    torch._dynamo.reset()
