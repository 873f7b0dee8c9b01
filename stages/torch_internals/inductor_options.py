"""TorchInductor's configuration: the options that a run may patch, and those that a recording patches.

Relies on ``torch._inductor.config`` (see :mod:`stages.torch_internals.config_options`), its ``patch`` and its options
``trace.provenance_tracking_level``, ``fx_graph_cache`` and ``fx_graph_remote_cache``, on
``torch._functorch.config.{enable_autograd_cache, enable_remote_autograd_cache}``, and on
``torch._dynamo.utils.is_parameter_freezing``, by which Dynamo asks for ``freezing`` while it traces.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config

from inductor_debug.stages.torch_internals import config_options
from inductor_debug.stages.torch_internals.compiler_options import unrecorded


def check_options(options: Mapping[str, Any], *, key_prefix: str = "backend.inductor.") -> dict[str, Any]:
    """TorchInductor options as a flat patch.

    Raises:
        ConfigurationError: for a key that ``torch._inductor.config`` does not have, and for a value of another type.
    """
    return config_options.checked(options, inductor_config, owner="TorchInductor", key_prefix=key_prefix)


def changed_options() -> dict[str, Any]:
    """Options of TorchInductor that are not at their defaults in this process now, of those that are plain values."""
    plain = bool | int | float | str | list | tuple | None
    values = inductor_config.get_config_copy()
    return {name: value for name, value in values.items()
            if isinstance(value, plain) and not inductor_config._is_default(name)}  # type: ignore[attr-defined]  # fmt: skip


def seen_by_dynamo(options: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """Those of ``options`` in force that Dynamo reads, which traces before any backend is called.

    With ``freezing`` parameters become constants of Dynamo's graph; where they are its inputs, nothing is frozen.
    """
    return inductor_config.patch({key: options[key] for key in ("freezing",) if key in options})


@contextlib.contextmanager
def patched_config(
    options: Mapping[str, Any], passes: Mapping[str, Any] | None = None, *, graphs: bool = False
) -> Iterator[None]:
    """Inductor's configuration with ``options`` and provenance tracking on, restored on exit.

    Args:
        options: of the run; they are of what compiled it, the rest is the recording's.
        passes: options that are passes which record.
        graphs: use the local caches of compiled graphs, Inductor's and AOTAutograd's, which torch uses by default. They
            are off otherwise: a hit would return a graph whose IR nobody saw. Compiled kernels are found in Inductor's
            code cache all the same.
    """
    own = {"trace.provenance_tracking_level": 1, "fx_graph_cache": graphs, "fx_graph_remote_cache": False}
    caches = {"enable_autograd_cache": graphs, "enable_remote_autograd_cache": False}
    known = {key: value for key, value in caches.items() if hasattr(functorch_config, key)}
    recording = dict(passes or {})
    ours = {*recording, *known, *own.keys() - options.keys()}
    with inductor_config.patch(own | dict(options) | recording), functorch_config.patch(known), unrecorded(ours):
        yield
