"""TorchInductor's configuration: the options that a run may patch.

Relies on ``torch._inductor.config`` (see :mod:`stages.torch_internals.config_options`) and its ``patch``, and on
``torch._dynamo.utils.is_parameter_freezing``, by which Dynamo asks for ``freezing`` while it traces.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from stages.torch_internals import config_options


def flatten_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"cpp": {"threads": 2}}`` as ``{"cpp.threads": 2}``; a key that Inductor knows as a dict keeps its value."""
    import torch._inductor.config as inductor_config

    return config_options.flattened(options, inductor_config.get_config_copy(), prefix)


def check_options(options: Mapping[str, Any], *, key_prefix: str = "backend.inductor.") -> dict[str, Any]:
    """TorchInductor options as a flat patch.

    Raises:
        ConfigurationError: for a key that ``torch._inductor.config`` does not have, and for a value of another type.
    """
    import torch._inductor.config as inductor_config

    return config_options.checked(options, inductor_config, owner="TorchInductor", key_prefix=key_prefix)


@contextlib.contextmanager
def seen_by_dynamo(options: Mapping[str, Any]) -> Iterator[None]:
    """Those of ``options`` in force that Dynamo reads, which traces before any backend is called.

    With ``freezing`` parameters become constants of Dynamo's graph; where they are its inputs, nothing is frozen.
    """
    import torch._inductor.config as inductor_config

    with inductor_config.patch({key: options[key] for key in ("freezing",) if key in options}):
        yield
