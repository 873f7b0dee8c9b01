"""Shared by the runner's tests: the worker finds ``runner_stages`` through PYTHONPATH."""

import os
import sys
from pathlib import Path

import pytest

from inductor_debug.pipeline.run import compiled_by

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


@pytest.fixture
def stages_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers import this folder's helper modules."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # it would unbuffer what native code prints too


@pytest.fixture
def no_variables_that_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what a run would record of this machine's environment: a compiler's path in ``CXX``, say."""
    for name in filter(compiled_by.matters, list(os.environ)):
        monkeypatch.delenv(name)
