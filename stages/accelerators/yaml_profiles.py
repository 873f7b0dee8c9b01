"""A profile's YAML as typed configuration without OmegaConf, whose import costs more than a whole check.

Only content that needs no judgement is taken: known keys, values of exactly the field's type, no interpolation, no key
twice. For anything else in a user's own file the answer is None: OmegaConf then validates, converts or refuses it, as
it does in the pipeline. In a stored run's file it is an error, for OmegaConf would resolve its interpolations.
"""

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.stored import read_own_yaml
from inductor_debug.models.visible import visible
from inductor_debug.models.yaml_limits import loader
from inductor_debug.stages.accelerators.config import AccelConfig


class _NotExact(Exception):
    """Something that OmegaConf has to look at: a value and its key."""


def exact_config(path: Path, overrides: Mapping[str, Any]) -> AccelConfig | None:
    """The configuration in a YAML file with fields replaced, or None where a value is not exactly of its field's type.

    Args:
        path: the file.
        overrides: fields of AccelConfig.

    Raises:
        ConfigurationError: the file is beyond the limits of :mod:`models.stored`.
    """
    import yaml

    content = read_own_yaml(path)
    try:
        found = yaml.load(content, loader()) or {}
        config = _value(dict(found) | dict(overrides), AccelConfig, "accel")
    except (_NotExact, yaml.YAMLError, ValueError, TypeError):
        return None
    assert isinstance(config, AccelConfig)
    return config


def stored_config(content: Mapping[str, Any], file: str) -> AccelConfig:
    """The profile of a stored configuration; nothing is looked up for it.

    Args:
        content: its ``accel``.
        file: which it came from, for messages.

    Raises:
        ConfigurationError: a key that a profile has not, a value of another type, an interpolation, or no value.
    """
    try:
        config = _value(dict(content), AccelConfig, "accel")
    except _NotExact as error:
        key, value = error.args
        told = visible(str(value))
        why = "an interpolation, which is not resolved when a stored run is read" if "${" in told else "not its type"
        raise ConfigurationError(
            f"{visible(file)} has no profile that can be read: {visible(key)} is {told[:200]!r}, {why}",
            key="check",
            valid="plain values",
            hint=f"{visible(key)}=VALUE, or accel=strict16",
        ) from error
    assert isinstance(config, AccelConfig)
    return config


def _value(value: Any, kind: Any, key: str) -> Any:
    """``value`` as a field of type ``kind``; _NotExact where it is not exactly that."""
    if isinstance(value, str) and ("${" in value or value == "???"):
        raise _NotExact(key, value)
    origin, parameters = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = [item for item in parameters if item is not type(None)]
        scalar = type(value) if len(kinds) > 1 and type(value) in kinds else kinds[0]
        return None if value is None else _value(value, scalar, key)
    if origin is list and type(value) in (list, tuple):
        return [_value(item, parameters[0], f"{key}[{index}]") for index, item in enumerate(value)]
    if origin is dict and type(value) is dict and all(type(name) is str for name in value):
        return {name: _value(item, parameters[1], f"{key}.{name}") for name, item in value.items()}
    if kind is Any:
        return _anything(value, key)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = _hints(kind)
        unknown = [name for name in value if name not in hints]
        if unknown:
            raise _NotExact(f"{key}.{unknown[0]}", value[unknown[0]])
        return kind(**{name: _value(item, hints[name], f"{key}.{name}") for name, item in value.items()})
    if kind in (str, int, bool, float) and type(value) is kind:
        return value
    raise _NotExact(key, value)


def _anything(value: Any, key: str) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(item, Any, f"{key}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: _value(item, Any, f"{key}.{name}") for name, item in value.items()}
    if value is None or type(value) in (str, int, bool, float):
        return value
    raise _NotExact(key, value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
