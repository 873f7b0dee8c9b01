"""TorchDynamo's configuration: the options that a run may patch, and those that Dynamo itself names in a graph break.

Relies on ``torch._dynamo.config`` (see :mod:`stages.torch_internals.config_options`) and its ``patch``.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from inductor_debug.stages.torch_internals import config_options

KEY = "backend.dynamo."


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """TorchDynamo options as a flat patch.

    Raises:
        ConfigurationError: for a key that ``torch._dynamo.config`` does not have, and for a value of another type.
    """
    import torch._dynamo.config as dynamo_config

    return config_options.checked(options, dynamo_config, owner="TorchDynamo", key_prefix=KEY)


def in_force(options: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """While open, Dynamo traces with ``options``; torch is not imported where there are none.

    Raises:
        ConfigurationError: see :func:`check_options`.
    """
    if not options:
        return contextlib.nullcontext()
    import torch._dynamo.config as dynamo_config

    return dynamo_config.patch(check_options(options))
