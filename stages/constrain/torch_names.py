"""What only torch can tell of a profile: whether the operations and dtypes that it lists exist."""

import types
from collections.abc import Mapping
from typing import Any

import torch

from models.errors import ConfigurationError, closest_first, example_of, invalid_choice
from stages.constrain.kinds import DTYPES
from stages.constrain.names import WILD
from stages.constrain.profile import Profile, completed
from stages.torch_internals.operators import operator_names

SHOWN = 8


def check_names(profile: Profile) -> None:
    """ConfigurationError for an operation or a dtype that this torch does not have, the nearest ones named."""
    for item in profile.written or completed(profile).written:
        rule, key = item.rule, item.value_key
        if rule.rule == "dtype":
            _check_dtypes(rule.value, key)
        for pattern in rule.operations or ():
            _check_operation(pattern.removeprefix("!"), f"{item.key}.operations")
        if rule.rule == "operation":
            listed = rule.value["allow"] if isinstance(rule.value, Mapping) else rule.value
            for pattern in listed:
                _check_operation(pattern, key)


def _check_dtypes(value: Any, key: str) -> None:
    for dtype in [*value, *(value.values() if isinstance(value, Mapping) else ())]:
        if not isinstance(getattr(torch, str(dtype).removeprefix("torch."), None), torch.dtype):
            known = [name for name in DTYPES if hasattr(torch, name)]
            raise invalid_choice(key, dtype, known, where=f"torch {torch.__version__}",
                                 example=example_of(key, "[{}]"))  # fmt: skip


def _check_operation(pattern: str, key: str) -> None:
    if any(character in pattern for character in WILD):
        return
    bare = pattern.removeprefix("torch.ops.").replace("::", ".")
    registered = operator_names()
    if bare.startswith("torch."):
        _check_callable(pattern, key)
        return
    parts = bare.split(".")
    packets = {name.partition(".")[0] for name in registered}
    if len(parts) == 1:
        known = {packet.split("::")[1] for packet in packets}
        if bare not in known and not hasattr(torch.nn.functional, bare) and not hasattr(torch.Tensor, bare):
            raise _unknown(key, pattern, bare, known)
        return
    if parts[0] in ("_operator", "operator", "builtins", "math"):
        return
    packet = f"{parts[0]}::{parts[1]}"
    if packet not in packets:
        raise _unknown(key, pattern, f"{parts[0]}.{parts[1]}", {name.replace("::", ".") for name in packets})
    if len(parts) == 3:
        overloads = {name.partition(".")[2] or "default" for name in registered if name.partition(".")[0] == packet}
        if parts[2] not in overloads:
            full = [f"{parts[0]}.{parts[1]}.{item}" for item in overloads]
            raise invalid_choice(key, pattern, full, example=example_of(key, "[{}]"))


def _check_callable(pattern: str, key: str) -> None:
    value: object = torch
    path = pattern.split(".")
    for index, part in enumerate(path[1:], start=1):
        if not hasattr(value, part):
            parent = ".".join(path[:index])
            public = {f"{parent}.{name}" for name in dir(value) if not name.startswith("__")}
            raise _unknown(key, pattern, f"{parent}.{part}", public)
        value = getattr(value, part)
    if isinstance(value, types.ModuleType):
        raise ConfigurationError(
            f"{key}: got {pattern!r}, a module; valid: its operations.\nTry: {example_of(key, f'[{pattern}.*]')}"
        )


def _unknown(key: str, pattern: str, name: str, known: set[str]) -> ConfigurationError:
    nearest = closest_first(name, sorted(known))[:SHOWN]
    return ConfigurationError(
        f"{key}: got {pattern!r}, which torch {torch.__version__} does not have; "
        f"nearest of {len(known)}: {', '.join(nearest)}.\n"
        f"Try: {example_of(key, f'[{nearest[0]}]')}"
    )
