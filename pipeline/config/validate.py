"""Checks what can be told without torch, before anything runs. What only torch can tell, the worker checks first."""

import dataclasses
import re
from typing import Any

from omegaconf import OmegaConf

from inductor_debug.models.errors import ConfigurationError, invalid_choice, wrong_value
from inductor_debug.models.options import check_declared
from inductor_debug.pipeline.config.keys import stage_not_selected, unknown_key
from inductor_debug.pipeline.config.limits import memory_limit_of
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.stages.accelerators.profile import validate_profile
from inductor_debug.stages.backends.plugins import adds_devices, installed_adapters
from inductor_debug.stages.registry import declared
from inductor_debug.stages.settings import BUILT_IN, BackendConfig
from inductor_debug.stages.torch_internals.registered_names import registered_names

DEVICES = ("cpu", "cuda")
_DEVICE = re.compile(r"cpu|cuda(:\d{1,3})?")
_FOREIGN_DEVICE = re.compile(r"[a-z_]\w*(:\d{1,3})?")
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")


def to_config(composed: Any) -> Config:
    """A composed ``DictConfig`` (without its ``hydra`` section) as dataclasses; ConfigurationError where it can't be.

    omegaconf's own errors pass through; :mod:`pipeline.config.hydra_errors` words them.
    """
    _reject_unknown_keys(composed, Config, "")
    for name in composed.stages:
        if name not in declared():
            raise invalid_choice("stages", name, declared())
        if OmegaConf.get_type(composed.stages, name) is not declared()[name].options:
            raise stage_not_selected(f"stages.{name}", name, [key for key in composed.stages if key != name])
    missing = sorted(OmegaConf.missing_keys(composed))
    if missing:
        raise ConfigurationError(
            "got no value",
            key=missing[0],
            valid=f"a value for each of {', '.join(missing)}",
            hint=f"{missing[0]}=VALUE",
        )
    config: Any = OmegaConf.to_object(composed)
    assert isinstance(config, Config), "the schema is the root of every composition"
    return config


def _reject_unknown_keys(node: Any, kind: Any, prefix: str) -> None:
    """``+key=value`` can add a key that the schema does not have: omegaconf opens the node for it."""
    fields = {item.name: item.type for item in dataclasses.fields(kind)}
    for key in node:
        if key not in fields:
            raise unknown_key(f"{prefix}{key}")
        value = node._get_node(key)
        child = getattr(value, "_metadata", None)
        if child is not None and dataclasses.is_dataclass(child.object_type) and not value._is_none():
            _reject_unknown_keys(value, child.object_type, f"{prefix}{key}.")


def validate(config: Config) -> None:
    """Raise ConfigurationError for the first value that can't be run. Imports no torch."""
    _check_devices(config)
    _check_backend(config.backend)
    check_declared(config)
    memory_limit_of(config.runner.memory_limit)
    memory_limit_of(config.runner.log_limit, "runner.log_limit")
    memory_limit_of(config.runner.cache_limit, "runner.cache_limit")
    _check_model(config)
    _check_stages(config)
    validate_profile(config.accel)


def _check_devices(config: Config) -> None:
    # a package may add a device to torch: the worker, which imports it, tells whether it did
    allowed = _FOREIGN_DEVICE if config.backend.adapter not in BUILT_IN or adds_devices() else _DEVICE
    for key, device in (("device", config.device), ("reference.device", config.reference.device)):
        if device is not None and not _DEVICE.fullmatch(device) and not allowed.fullmatch(device):
            raise invalid_choice(key, device, (*DEVICES, "cuda:0"))


def _check_backend(backend: BackendConfig) -> None:
    """``name`` is what a run is called: that of a backend which does not run it would be a false name."""
    if not backend.name.strip():
        raise ConfigurationError(
            "got no value",
            key="backend.name",
            valid=f"what is registered with torch ({', '.join(registered_names())}), or what an installed package adds",
            hint="backend=dynamo backend.name=eager",
        )
    if backend.adapter not in BUILT_IN or backend.adapter == "dynamo" or backend.name in BUILT_IN:  # see shown_name
        return
    if backend.name in (*installed_adapters(), *registered_names()):
        installed = backend.name in installed_adapters()
        example = f"backend={backend.name}" if installed else f"backend=dynamo backend.name={backend.name}"
        raise ConfigurationError(
            f"got {backend.name!r} with backend.adapter={backend.adapter}, so that a run of {backend.adapter} "
            "would bear the name of another backend",
            key="backend.name",
            valid="a name of your own",
            hint=example,
        )


def _check_model(config: Config) -> None:
    target = config.model.build.get("_target_")
    if not isinstance(target, str) or not _DOTTED.fullmatch(target):
        valid = "the dotted path of a callable that returns a module and its inputs"
        raise wrong_value("model.build._target_", target, valid, "my_package.my_module.build")
    if config.model.inputs is not None and not config.model.inputs.endswith(".safetensors"):
        raise wrong_value("model.inputs", config.model.inputs, "a .safetensors file", "inputs.safetensors")


def _check_stages(config: Config) -> None:
    if not config.stages:
        raise ConfigurationError(
            "got an empty list",
            key="stages",
            valid=f"one or more of {', '.join(declared())}",
            hint="'stages=[capture,report]'",
        )
    for options in config.stages.values():
        if hasattr(options, "check"):
            options.check()
