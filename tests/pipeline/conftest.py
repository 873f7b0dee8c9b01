"""Shared by the runner's tests: the worker finds ``runner_stages`` through PYTHONPATH."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.fixture
def stages_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers import this folder's helper modules."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it would unbuffer what native code prints too
