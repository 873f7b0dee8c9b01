"""What TorchInductor loads in the place of the module that it generated.

Relies on ``torch._inductor.codecache.PyCodeCache.{write,load_by_key_path}``: every generated Python module, the one
that holds a C++ wrapper included, is loaded by the second from the file that the first wrote. What a compiled graph
calls its source code is read from the original's file.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from torch._inductor.codecache import PyCodeCache


def loaded(texts: list[str]) -> contextlib.AbstractContextManager[Any]:
    """While open, the text of each module that this process's compilations load is added to ``texts`` before that."""
    original = PyCodeCache.load_by_key_path

    def load_by_key_path(key: str, path: str, *args: Any, **kwargs: Any) -> ModuleType:
        texts.append(Path(path).read_text(encoding="utf-8"))
        return original(key, path, *args, **kwargs)

    return mock.patch.object(PyCodeCache, "load_by_key_path", load_by_key_path)


def rewritten(rewrite: Callable[[str], str]) -> contextlib.AbstractContextManager[Any]:
    """While open, modules that this process's compilations generate are loaded as ``rewrite`` makes them.

    Args:
        rewrite: gets a module's text, of kernels too; what it returns as it was is loaded as if this were not there.
    """
    original = PyCodeCache.load_by_key_path

    def load_by_key_path(key: str, path: str, *args: Any, **kwargs: Any) -> ModuleType:
        text = Path(path).read_text(encoding="utf-8")
        changed = rewrite(text)
        if changed != text:
            key, path = PyCodeCache.write(changed)
        return original(key, path, *args, **kwargs)

    return mock.patch.object(PyCodeCache, "load_by_key_path", load_by_key_path)
