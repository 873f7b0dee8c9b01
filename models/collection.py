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


@contextlib.contextmanager
def kept_imports() -> Iterator[None]:
    """Imports inside without a collection, and what there is afterwards is never looked at by one again.

    For the start of a process that is ours alone. Modules stay to its end, and torch with its compilers makes over
    600,000 objects (``gc.get_freeze_count()``), all of which each full collection would go through.
    """
    with paused_collection():
        yield
    gc.freeze()
