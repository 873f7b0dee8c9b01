"""Which adapter stands behind a backend's configuration."""

import importlib
from collections.abc import Mapping
from typing import Any

from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.plugins import adapter_path, installed_adapters
from inductor_debug.stages.backends.registered import RegisteredAdapter
from inductor_debug.stages.backends.user_adapters import adapter_at
from inductor_debug.stages.settings import BUILT_IN, BackendConfig, Settings
from inductor_debug.stages.torch_internals.backends import registered_backends

FACTORIES = {
    "eager": "eager:eager",
    "aot_eager": "eager:aot_eager",
    "inductor": "inductor:configured",
    "aot_inductor": "aot_inductor:configured",
    "mock": "mock:mock",
    "aot_mock": "mock:aot_mock",
    "emulated": "emulated:configured",
    "dynamo": "registered:configured",
}
"""Name → ``module:function`` of this package; the function makes the adapter of a configuration and a profile."""
assert FACTORIES.keys() == BUILT_IN.keys(), "FACTORIES here and BUILT_IN of stages/settings.py name the same backends"

MISSING = "???"
"""A mandatory value that nobody gave, as OmegaConf writes it."""


def build_adapter(settings: Settings | BackendConfig, accel: AccelConfig | None = None) -> AcceleratorAdapter:
    """The adapter that the configuration asks for.

    Args:
        settings: a run's settings (``mock`` and ``aot_mock`` then enforce ``settings.accel``, or the ``mock`` profile
            where that is ``none``, and ``emulated`` emulates it), or a backend's configuration alone.
        accel: the profile, for a backend's configuration alone.

    Raises:
        ConfigurationError: no such adapter, options that it does not take, or a dotted path that leads to nothing.
    """
    config = settings.backend if isinstance(settings, Settings) else settings
    accel = settings.accel if isinstance(settings, Settings) else accel
    if config.adapter == MISSING or config.name == MISSING:
        raise invalid_choice("backend.name", config.name, registered_backends())
    known = BUILT_IN.get(config.adapter)
    if config.inductor and not (known and known.inductor):
        with_inductor = " or ".join(name for name, item in BUILT_IN.items() if item.inductor)
        raise ConfigurationError(
            f"backend.inductor: got {', '.join(config.inductor)} with backend.adapter={config.adapter}, which does not "
            f"compile with TorchInductor; valid: backend.adapter={with_inductor}.\nTry: backend=inductor"
        )
    if known is None and ("." in config.adapter or ":" in config.adapter):
        return adapter_at(config.adapter, config.options, accel)
    if known is None:
        return _installed(config.adapter, config.options, accel)
    if config.options and not known.options:
        raise ConfigurationError(
            f"backend.options: got {', '.join(map(str, config.options))}; "
            f"valid: none, {config.adapter} takes no options."
            "\nTry: backend.options={}"
        )
    module, _, factory = FACTORIES[config.adapter].partition(":")
    place = importlib.import_module(f"inductor_debug.stages.backends.{module}")
    return getattr(place, factory)(config, accel)


def reference_adapter(settings: Settings) -> AcceleratorAdapter | None:
    """The adapter that ``reference.backend`` names, torch's registry included; None for eager, the module itself.

    Raises:
        ConfigurationError: there is none of that name.
    """
    name = settings.reference.backend
    if settings.reference.uncompiled:
        return None
    adapters = [*(item for item in BUILT_IN if item != "dynamo"), *installed_adapters()]
    if name in adapters:
        return build_adapter(BackendConfig(name=name, adapter=name))
    registered = registered_backends()
    if name not in registered:
        raise invalid_choice("reference.backend", name, dict.fromkeys([*adapters, *registered]))
    return RegisteredAdapter(name)


def _installed(name: str, options: Mapping[str, Any], accel: AccelConfig | None) -> AcceleratorAdapter:
    """The adapter that an installed package offers as ``name``."""
    path = adapter_path(name)
    if path is None:
        raise invalid_choice("backend.adapter", name, [*BUILT_IN, *installed_adapters(), "package.module.Class"])
    return adapter_at(path, options, accel)
