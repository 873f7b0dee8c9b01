"""Configuration as primitives that JSON holds, and back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.shapes import Mismatch, fields_of, reader


def to_primitives(value: Any) -> Any:
    """``value`` with dataclasses as dicts and tuples as lists; a number stays what it is, an infinity too."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dict(fields_of(value))
    if isinstance(value, Mapping):
        return {str(key): to_primitives(item) for key, item in value.items()}
    return [to_primitives(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_primitives(shape: Any, value: Any, *, key: str = "") -> Any:
    """Plain data as ``shape`` (:mod:`models.shapes`), of a configuration whose dotted name is ``key``.

    Raises:
        ConfigurationError: a key that a dataclass does not have, or a value of another type.
    """
    try:
        return reader(shape, exact=True)(value)
    except Mismatch as error:
        place = ".".join(filter(None, (key, error.place)))
        raise ConfigurationError(f"{place or 'the configuration'}: got {error.got}; valid: {error.valid}.") from error
