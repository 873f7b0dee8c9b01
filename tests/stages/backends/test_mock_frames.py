"""Frames that Dynamo leaves to Python without a graph: a strict mock refuses them, others are converted as before."""

import logging
from typing import Any

import pytest
import torch
from mock_models import clean, inner
from torch import nn

from inductor_debug.stages.backends.strict_error import ProfileViolated
from inductor_debug.stages.mock_backends import aot_mock_backend, mock_backend

__all__ = ["clean"]  # an autouse fixture

STRICT = {"profile": "none", "strict": True, "denied": ["aten.lstm", "aten.linalg_inv_ex"]}


@torch._dynamo.disable
def hidden(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(x)


def disabled(x: torch.Tensor) -> torch.Tensor:
    return hidden(x)


def disabled_in_finally(x: torch.Tensor) -> torch.Tensor:
    try:
        y = hidden(x)
    finally:
        x = x + 1
    return x + y


def generator(x: torch.Tensor) -> Any:
    yield x * 2


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.lstm, self.after = nn.Linear(4, 4), nn.LSTM(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.lstm(self.before(x))[0])


HIDING = {
    "lstm": (Recurrent(), "RNN, GRU, or LSTM"),
    "disabled": (disabled, "disable"),
    "in finally": (disabled_in_finally, "disable"),
    "generator": (generator, "generator"),
}


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend, "mock"])
@pytest.mark.parametrize("name", HIDING)
def test_a_strict_profile_refuses_a_frame_without_a_graph(name: str, backend: Any) -> None:
    module, reason = HIDING[name]
    compiled = torch.compile(module, backend=backend, options=STRICT)
    for _ in range(2):  # it is not skipped from then on
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="not established") as caught:
            compiled(torch.eye(4))
        error = inner(caught)
        assert isinstance(error, ProfileViolated)
        assert reason in error.outside and __file__ in error.outside


def test_a_warning_profile_tells_and_runs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="inductor_debug.stages.backends.mock"):
        result = torch.compile(disabled, backend=mock_backend, options=STRICT | {"strict": False})(torch.eye(4))
    assert torch.equal(result, torch.eye(4))
    (line,) = caplog.messages
    assert "is in no graph, so it was not checked" in line and "disable" in line


def test_a_break_that_a_graph_shows_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def late(x: torch.Tensor) -> torch.Tensor:
        return hidden(x * 2)

    with caplog.at_level(logging.WARNING, logger="inductor_debug.stages.backends.mock"):
        torch.compile(late, backend=mock_backend, options=STRICT | {"strict": False})(torch.eye(4))
    assert len(caplog.messages) == 1 and "g0.dynamo ends in a graph break" in caplog.text


def test_frames_without_anything_to_check_are_kept() -> None:
    def same(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return x, x.shape

    x = torch.eye(4)
    assert torch.compile(same, backend=mock_backend, options=STRICT)(x)[0] is x
    assert torch.compile(nn.Linear(4, 4), backend=mock_backend, options=STRICT)(x).shape == (4, 4)


@torch._dynamo.config.patch(recompile_limit=2)
def test_a_size_beyond_the_recompilations_is_refused() -> None:
    compiled = torch.compile(lambda x: x * 2, backend=mock_backend, options=STRICT, dynamic=False)
    compiled(torch.ones(2)), compiled(torch.ones(3))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="recompile"):
        compiled(torch.ones(4))


def test_other_backends_and_fullgraph_are_torchs_own() -> None:
    assert torch.equal(torch.compile(disabled, backend="eager")(torch.eye(4)), torch.eye(4))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(disabled, backend=mock_backend, options=STRICT, fullgraph=True)(torch.eye(4))


def raises(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    if x.shape[0] == 3:
        raise KeyError("not three")
    return y


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_the_users_own_exception_is_not_taken_for_a_break(backend: Any) -> None:
    compiled = torch.compile(raises, backend=backend, options=STRICT)
    with pytest.raises(KeyError, match="not three"):
        compiled(torch.ones(3))


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_an_optimizers_step_is_not_refused_for_torchs_own_break(backend: Any) -> None:
    layer = nn.Linear(4, 4)
    layer(torch.ones(1, 4)).sum().backward()
    before = layer.weight.detach().clone()
    torch.compile(torch.optim.SGD(layer.parameters(), lr=0.1).step, backend=backend, options=STRICT)()
    assert not torch.equal(layer.weight, before)
