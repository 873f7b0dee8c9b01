"""Waits for what another process does."""

import time
from collections.abc import Callable


def until(true: Callable[[], bool], within_s: float = 60.0) -> None:
    """Waits until something is so; fails where it is not in time."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
