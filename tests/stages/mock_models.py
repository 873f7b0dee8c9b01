"""What the tests of the mock backends share."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from inductor_debug.stages.backends.strict_error import ProfileViolated

VARIABLES = ("MOCK_STRICT", "MOCK_ALIGNMENT", "MOCK_MAX_MEMORY", "MOCK_REPRO_DIR")
STRICT16 = {"strict": True, "alignment": 16, "verified_repros": 0}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOCK_REPRO_DIR", str(tmp_path / "repros"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


class Net(torch.nn.Module):
    """Fits alignment 8, breaks 16 in its projection and what comes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.projection(x)) * 2


def inner(caught: Any) -> BaseException:
    error = caught.value
    return getattr(error, "inner_exception", None) or error


def refused(backend: Any, options: dict[str, Any], module: Callable[..., Any], x: torch.Tensor) -> ProfileViolated:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(module, backend=backend, options=options)(x)
    error = inner(caught)
    assert isinstance(error, ProfileViolated), error
    return error
