"""Configuration as primitives that JSON holds, and back."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from inductor_debug.models.errors import invalid_choice
from inductor_debug.models.shapes import fields_of


def to_primitives(value: Any) -> Any:
    """``value`` with dataclasses as dicts and tuples as lists; a number stays what it is, an infinity too."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dict(fields_of(value))
    if isinstance(value, Mapping):
        return {str(key): to_primitives(item) for key, item in value.items()}
    return [to_primitives(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_primitives(annotation: Any, value: Any, *, key: str = "") -> Any:
    """Build a (nested) dataclass from dicts and lists; ConfigurationError for a key that it does not have."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        if not isinstance(value, dict):
            return value
        hints = typing.get_type_hints(annotation)
        for name in value:
            if name not in hints:
                raise invalid_choice(key or annotation.__name__, name, hints)
        prefix = f"{key}." if key else ""
        return annotation(
            **{name: from_primitives(hints[name], item, key=prefix + name) for name, item in value.items()}
        )
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return value if value is None or len(inner) != 1 else from_primitives(inner[0], value, key=key)
    if origin is list and isinstance(value, list):
        return [from_primitives(arguments[0], item, key=key) for item in value]
    if origin is dict and isinstance(value, dict):
        return {name: from_primitives(arguments[1], item, key=f"{key}.{name}") for name, item in value.items()}
    return value
