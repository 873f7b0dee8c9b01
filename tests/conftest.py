"""Shared by all tests."""

import logging
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_browser import browser, opened  # noqa: F401 - fixtures

os.environ.setdefault("MPLCONFIGDIR", str(Path("~/.cache/matplotlib").expanduser()))  # its fonts, found once
_CACHE = tempfile.TemporaryDirectory(prefix="inductor-debug-tests-")
os.environ["XDG_CACHE_HOME"] = _CACHE.name  # of fixtures that several tests share
os.environ["INDUCTOR_DEBUG_LOCKS"] = str(Path(_CACHE.name, "locks"))
os.environ.pop("CI", None)  # torch reads an option's default from it: here as at a user's desk
for _name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)  # rich heeds them, whoever runs the tests
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # a thread that waits leaves its core to the other tests' processes


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test is given results that another one, or the user, has kept, nor waits for one that measures times."""
    own = Path(_CACHE.name) / uuid.uuid4().hex
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    monkeypatch.setenv("INDUCTOR_DEBUG_LOCKS", str(own / "locks"))


@pytest.fixture(autouse=True)
def root_logging_restored() -> Iterator[None]:
    """Undo what a command run in this process did to logging: its handlers write to this test's captured streams."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def path_restored() -> Iterator[None]:
    """Undo what a command run in this process did to Python's path: the working directory came to its end."""
    path = list(sys.path)
    yield
    sys.path[:] = path
