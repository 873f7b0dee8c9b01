"""Pauses of Python's cyclic garbage collector."""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """No cyclic garbage collection inside.

    For code that makes very many objects, keeps them, and makes no circles of them: the collector would go through all
    of them again and again, and find nothing to free.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
