"""The options of torch's compilers that differ from their defaults.

Relies on ``torch._inductor.config`` and ``torch._dynamo.config`` (see :mod:`stages.torch_internals.config_options`).
Many of their defaults are read from the environment when they are imported: the defaults proper are those of the same
file, executed without it.
"""

import functools
import importlib.util
import os
import sys
from types import MappingProxyType, ModuleType
from typing import Any
from unittest import mock

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "TMPDIR", "TEMP", "TMP")
"""Variables that say who runs and where files are, not what is compiled."""


def differing() -> dict[str, dict[str, Any]]:
    """Compiler → option → value, as they are in force now in this thread, where that is not the default.

    Options whose value is a default computed from the machine are equal to it. Values are plain, or their ``repr``.
    """
    import torch._dynamo.config as dynamo_config
    import torch._inductor.config as inductor_config

    found: dict[str, dict[str, Any]] = {}
    for name, config in (("inductor", inductor_config), ("dynamo", dynamo_config)):
        defaults = _defaults(config)
        values = config.get_config_copy()
        found[name] = {key: plain(values[key]) for key in sorted(values) if values[key] != defaults.get(key)}
    return found


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return f"<{getattr(value, '__module__', '?')}.{name}>"  # no address: it is another in every process


@functools.cache
def _defaults(config: ModuleType) -> MappingProxyType[str, Any]:
    """A configuration module's values where no variable is set: those of a second copy of it."""
    assert config.__file__ is not None
    name = f"_defaults_of_{config.__name__.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, config.__file__)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[name] = copy  # the module looks itself up by its name
    try:
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        with mock.patch.dict(os.environ, kept, clear=True):
            spec.loader.exec_module(copy)
            return MappingProxyType(copy.get_config_copy())
    finally:
        del sys.modules[name]
