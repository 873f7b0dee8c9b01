"""A profile's YAML as typed configuration without OmegaConf, whose import costs more than a whole check.

Only content that needs no judgement is taken: known keys, values of exactly the field's type, no interpolation, no key
twice. For anything else the answer is None, and OmegaConf validates, converts or refuses it as it does in the pipeline.
"""

import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from stages.constrain.config import AccelConfig


class _NotPlain(Exception):
    """Something that OmegaConf has to look at."""


def plain_config(path: Path, overrides: Mapping[str, Any]) -> AccelConfig | None:
    """The configuration in a YAML file with fields replaced, or None where it is not plain.

    Args:
        path: the file; one that can't be read is not plain.
        overrides: fields of AccelConfig.
    """
    import yaml

    try:
        content = yaml.load(path.read_bytes(), _loader()) or {}
        config = _value(dict(content) | dict(overrides), AccelConfig)
    except (_NotPlain, yaml.YAMLError, OSError, ValueError, TypeError):
        return None
    assert isinstance(config, AccelConfig)
    return config


@functools.cache
def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        """Refuses a key that is there twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            if len(set(keys)) != len(keys):
                raise _NotPlain
            return super().construct_mapping(node, deep=deep)

    return Loader


def _value(value: Any, kind: Any) -> Any:
    """``value`` as a field of type ``kind``; _NotPlain where it is not exactly that."""
    if isinstance(value, str) and ("${" in value or value == "???"):
        raise _NotPlain
    origin, parameters = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _one_of(value, [item for item in parameters if item is not type(None)])
    if origin is list and type(value) in (list, tuple):
        return [_value(item, parameters[0]) for item in value]
    if origin is dict and type(value) is dict and all(type(key) is str for key in value):
        return {key: _value(item, parameters[1]) for key, item in value.items()}
    if kind is Any:
        return _anything(value)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, dict):
        hints = _hints(kind)
        if not set(value) <= set(hints):
            raise _NotPlain
        return kind(**{key: _value(item, hints[key]) for key, item in value.items()})
    if kind in (str, int, bool, float) and type(value) is kind:
        return value
    raise _NotPlain


def _one_of(value: Any, kinds: list[Any]) -> Any:
    """``value`` as the only, or the scalar, type of a union; _NotPlain where it is of none."""
    if len(kinds) > 1 and type(value) in kinds:
        return _value(value, type(value))
    return _value(value, kinds[0])


def _anything(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_value(item, Any) for item in value]
    if isinstance(value, dict):
        return {key: _value(item, Any) for key, item in value.items()}
    if value is None or type(value) in (str, int, bool, float):
        return value
    raise _NotPlain


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
