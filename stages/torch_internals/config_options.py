"""The configuration modules of torch's compilers: the names and types of their options.

Relies on ``get_config_copy`` and ``get_type`` of the modules that ``torch.utils._config_module`` makes.
"""

from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from inductor_debug.models.errors import ConfigurationError, closest_first

NEAREST = 10
"""So many options are named where one is misspelt."""


def flattened(options: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"cpp": {"threads": 2}}`` as ``{"cpp.threads": 2}``; a key that is ``known`` as a dict keeps its value."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and dotted not in known:
            flat |= flattened(value, known, f"{dotted}.")
        else:
            flat[dotted] = dict(value) if isinstance(value, Mapping) else value
    return flat


def checked(options: Mapping[str, Any], config: Any, *, owner: str, key_prefix: str) -> dict[str, Any]:
    """Options as a flat patch of a configuration module.

    Args:
        options: nested, or with dotted keys.
        config: the module, ``torch._inductor.config`` or ``torch._dynamo.config``.
        owner: what a person calls it.
        key_prefix: of the keys in messages.

    Raises:
        ConfigurationError: for a key that the module does not have, and for a value of another type.
    """
    known = {key: value for key, value in config.get_config_copy().items() if not _last(key).isupper()}
    flat = flattened(options, known)
    for key, value in flat.items():
        if key not in known:
            raise _unknown_option(key, value, known, key_prefix, owner, config.__name__)
        expected = config.get_type(key)
        if not _fits(value, expected):
            name = expected.__name__ if isinstance(expected, type) else str(expected).replace("typing.", "")
            raise ConfigurationError(
                f"{key_prefix}{key}: got {value!r} ({type(value).__name__}); valid: {name}, "
                f"for example its present value.\nTry: {key_prefix}{key}={_as_yaml(known[key])}"
            )
    return flat


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _unknown_option(
    key: str, value: Any, known: Mapping[str, Any], prefix: str, owner: str, module: str
) -> ConfigurationError:
    """The error for a key that a compiler does not have: there are hundreds, so the nearest alone are told."""
    public = [name for name in known if not _last(name).startswith("_")]
    near = closest_first(key, public)[:NEAREST]
    return ConfigurationError(
        f"{prefix}{key}: {owner} has no such option; valid: {', '.join(near)} and {len(public) - len(near)} more "
        f"(all: python -c 'import {module} as c; print(*c.get_config_copy())').\n"
        f"Try: {prefix}{near[0]}={_as_yaml(value)}"
    )


def _as_yaml(value: Any) -> str:
    return {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool | None) else str(value)


def _fits(value: Any, expected: Any) -> bool:
    """Whether ``value`` may stand where the annotation ``expected`` is. Annotations that can't be told apart pass."""
    origin = get_origin(expected)
    if expected in (Any, type(None)):  # no annotation and the default None: nothing is known
        return True
    if origin is Union or type(expected).__name__ == "UnionType":
        return any(value is None if choice is type(None) else _fits(value, choice) for choice in get_args(expected))
    if origin is Literal:
        return value in get_args(expected)
    container = origin or expected
    if not isinstance(container, type):
        return True
    if container is bool or isinstance(value, bool):
        return container in (bool, object) and isinstance(value, bool)
    if container is float:
        return isinstance(value, int | float)
    if container is tuple:
        return isinstance(value, tuple | list)
    return isinstance(value, container)
