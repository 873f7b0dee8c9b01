"""Checks what can be told without torch, before anything runs. What only torch can tell, the worker checks first."""

import dataclasses
import re
from typing import Any

from models.config import DTYPES, MODES, PRECISIONS, TF32
from models.errors import ConfigurationError, invalid_choice
from pipeline.keys import stage_not_selected, unknown_key
from pipeline.schema import ISOLATIONS, Config
from pipeline.watch import memory_limit_of
from stages.constrain.profile import validate_profile
from stages.guards.config import check_options
from stages.lower.config import BUILT_IN
from stages.lower.plugins import adds_devices
from stages.registry import CONFIGS

DEVICES = ("cpu", "cuda")
_DEVICE = re.compile(r"cpu|cuda(:\d+)?")
_FOREIGN_DEVICE = re.compile(r"[a-z_]\w*(:\d+)?")
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+")

_AT_LEAST: dict[str, float] = {
    "model.batch_size": 1,
    "model.sequence_length": 1,
    "model.image_size": 1,
    "seed": 0,
    "stages.benchmark.processes": 2,
    "stages.benchmark.warmup": 0,
    "stages.benchmark.repeats": 1,
    "stages.benchmark.max_repeats": 1,
    "stages.kerneldiff.atol": 0,
    "stages.kerneldiff.rtol": 0,
    "stages.kerneldiff.worst": 0,
    "stages.profile.warmup": 0,
    "stages.profile.steps": 1,
    "stages.profile.trace_steps": 0,
    "stages.report.max_rows": 0,
}
_MORE_THAN: dict[str, float] = {
    "runner.timeout_s": 0,
    "stages.benchmark.relative_ci": 0,
    "stages.benchmark.budget_s": 0,
    "stages.profile.budget_s": 0,
    "stages.kerneldiff.factor": 0,
}
_SEED_LIMIT = 2**63


def to_config(composed: Any) -> Config:
    """A composed ``DictConfig`` (without its ``hydra`` section) as dataclasses; ConfigurationError where it can't be.

    omegaconf's own errors pass through; :mod:`pipeline.hydra_errors` words them.
    """
    from omegaconf import OmegaConf

    _reject_unknown_keys(composed, Config, "")
    for name in composed.stages:
        if name not in CONFIGS:
            raise invalid_choice("stages", name, CONFIGS)
        if OmegaConf.get_type(composed.stages, name) is not CONFIGS[name]:
            raise stage_not_selected(f"stages.{name}", name, [key for key in composed.stages if key != name])
    missing = sorted(OmegaConf.missing_keys(composed))
    if missing:
        raise ConfigurationError(
            f"{missing[0]}: got no value; valid: a value for each of {', '.join(missing)}.\nTry: {missing[0]}=VALUE"
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
    _check_choices(config)
    _check_numbers(config)
    _check_runner(config)
    _check_model(config)
    _check_stages(config)
    validate_profile(config.accel)


def _check_choices(config: Config) -> None:
    closed = [
        ("dtype", config.dtype, DTYPES),
        ("mode", config.mode, MODES),
        ("precision", config.precision, PRECISIONS),
        ("tf32", config.tf32, TF32),
        ("runner.isolation", config.runner.isolation, ISOLATIONS),
        ("reference.dtype", config.reference.dtype, DTYPES),
    ]
    for key, value, choices in closed:
        if value not in choices and not (value is None and key.startswith("reference.")):
            raise invalid_choice(key, value, choices)
    for key, device in (("device", config.device), ("reference.device", config.reference.device)):
        if device is not None and not _DEVICE.fullmatch(device) and not _may_be_foreign(config, device):
            raise invalid_choice(key, device, (*DEVICES, "cuda:N"))


def _may_be_foreign(config: Config, device: str) -> bool:
    """Whether a package may add such a device to torch: the worker, which imports it, tells whether it did."""
    backend = config.backend.adapter
    return bool(_FOREIGN_DEVICE.fullmatch(device)) and (backend not in BUILT_IN or adds_devices())


def _check_numbers(config: Config) -> None:
    for key, least in _AT_LEAST.items():
        value = _lookup(config, key)
        if value is not None and not value >= least:
            raise _out_of_range(key, value, f"{least:g} or more", max(least, 1))
    for key, limit in _MORE_THAN.items():
        value = _lookup(config, key)
        if value is not None and not value > limit:
            raise _out_of_range(key, value, f"more than {limit}", 1)
    if config.seed >= _SEED_LIMIT:
        raise _out_of_range("seed", config.seed, "0 to 2**63 - 1", 0)


def _out_of_range(key: str, value: object, valid: str, example: float) -> ConfigurationError:
    return ConfigurationError(f"{key}: got {value}; valid: {valid}.\nTry: {key}={example}")


def _lookup(config: Config, key: str) -> Any:
    """The value under a dotted key; None where its stage is not selected or has no such option."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return value


def _check_runner(config: Config) -> None:
    if config.runner.memory_limit is not None:
        memory_limit_of(config.runner.memory_limit)


def _check_model(config: Config) -> None:
    target = config.model.build.get("_target_")
    if not isinstance(target, str) or not _DOTTED.fullmatch(target):
        raise ConfigurationError(
            f"model.build._target_: got {target!r}; valid: the dotted path of a callable that returns a module and "
            "its inputs.\nTry: model.build._target_=my_package.my_module.build"
        )
    if config.model.inputs is not None and not config.model.inputs.endswith(".safetensors"):
        raise ConfigurationError(
            f"model.inputs: got {config.model.inputs!r}; valid: a .safetensors file.\n"
            "Try: model.inputs=inputs.safetensors"
        )


def _check_stages(config: Config) -> None:
    if not config.stages:
        raise ConfigurationError(
            f"stages: got an empty list; valid: one or more of {', '.join(CONFIGS)}.\nTry: stages=[capture,report]"
        )
    guards = config.stages.get("guards")
    if guards is not None:
        check_options(guards.vary, guards.dims, guards.compiler)
