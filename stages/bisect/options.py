"""Options of Dynamo's and AOTAutograd's own configuration that may make a fault go away, and options as typed."""

from collections.abc import Mapping
from typing import Any

from inductor_debug.stages.bisect.messages import as_typed

OF_DYNAMO = ("inline_inbuilt_nn_modules=false", "automatic_dynamic_shapes=false", "suppress_errors=true")
OF_AOT = ("cse=false",)
"""As they are typed."""


def option_values(switches: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """``name=value``, as it is typed, → (name, value).

    Args:
        switches: name → the value to try, as of :meth:`AcceleratorAdapter.switches`.
    """
    return {as_typed(name, value): (name, value) for name, value in switches.items()}
