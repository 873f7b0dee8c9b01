"""A backend as ``torch.compile`` takes it in a script: a name and options."""

from collections.abc import Mapping
from typing import Any

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.eager import AotEagerAdapter, EagerAdapter
from inductor_debug.stages.backends.inductor import InductorAdapter
from inductor_debug.stages.backends.mock import MockAdapter
from inductor_debug.stages.backends.registered import RegisteredAdapter
from inductor_debug.stages.torch_internals.backends import inductor_modes
from inductor_debug.stages.torch_internals.inductor_options import check_options


def name_of(adapter: AcceleratorAdapter) -> tuple[str, Mapping[str, Any]] | None:
    """The name that torch knows a backend by, and its options; None for one that torch does not know.

    Of the mock backends it is what executes behind the checks: a violation leaves a script of its own.
    """
    if type(adapter) is InductorAdapter:
        return "inductor", check_options(adapter.inductor)
    if type(adapter) in (EagerAdapter, AotEagerAdapter):
        return adapter.name, {}
    if isinstance(adapter, MockAdapter):
        mode = adapter.options.mode
        given = {} if mode is None else inductor_modes()[mode]
        return ("inductor", {**given, "fallback_random": True}) if adapter.options.inductor else ("eager", {})
    return (adapter.name, adapter.options) if isinstance(adapter, RegisteredAdapter) else None
