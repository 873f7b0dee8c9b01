"""TorchInductor's configuration: the names and types of its options.

Relies on ``torch._inductor.config.get_config_copy``, ``get_type`` and ``patch``, and on
``torch._dynamo.utils.is_parameter_freezing``, by which Dynamo asks for ``freezing`` while it traces.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from models.errors import ConfigurationError, closest_first

NEAREST = 10
"""So many options are named where one is misspelt."""


def flatten_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"cpp": {"threads": 2}}`` as ``{"cpp.threads": 2}``; a key that Inductor knows as a dict keeps its value."""
    import torch._inductor.config as inductor_config

    known = inductor_config.get_config_copy()
    flat: dict[str, Any] = {}
    for key, value in options.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and dotted not in known:
            flat |= flatten_options(value, f"{dotted}.")
        else:
            flat[dotted] = dict(value) if isinstance(value, Mapping) else value
    return flat


def check_options(options: Mapping[str, Any], *, key_prefix: str = "backend.inductor.") -> dict[str, Any]:
    """TorchInductor options as a flat patch.

    Raises:
        ConfigurationError: for a key that ``torch._inductor.config`` does not have, and for a value of another type.
    """
    import torch._inductor.config as inductor_config

    known = {key: value for key, value in inductor_config.get_config_copy().items() if not _last(key).isupper()}
    flat = flatten_options(options)
    for key, value in flat.items():
        if key not in known:
            raise _unknown_option(key, value, known, key_prefix)
        expected = inductor_config.get_type(key)  # type: ignore[attr-defined]
        if not _fits(value, expected):
            name = expected.__name__ if isinstance(expected, type) else str(expected).replace("typing.", "")
            raise ConfigurationError(
                f"{key_prefix}{key}: got {value!r} ({type(value).__name__}); valid: {name}, "
                f"for example its present value.\nTry: {key_prefix}{key}={_as_yaml(known[key])}"
            )
    return flat


@contextlib.contextmanager
def seen_by_dynamo(options: Mapping[str, Any]) -> Iterator[None]:
    """Those of ``options`` in force that Dynamo reads, which traces before any backend is called.

    With ``freezing`` parameters become constants of Dynamo's graph; where they are its inputs, nothing is frozen.
    """
    import torch._inductor.config as inductor_config

    with inductor_config.patch({key: options[key] for key in ("freezing",) if key in options}):
        yield


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _unknown_option(key: str, value: Any, known: Mapping[str, Any], prefix: str) -> ConfigurationError:
    """The error for a key that TorchInductor does not have: there are hundreds, so the nearest alone are told."""
    public = [name for name in known if not _last(name).startswith("_")]
    near = closest_first(key, public)[:NEAREST]
    return ConfigurationError(
        f"{prefix}{key}: TorchInductor has no such option; valid: {', '.join(near)} and {len(public) - len(near)} more "
        f"(all: python -c 'import torch._inductor.config as c; print(*c.get_config_copy())').\n"
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
