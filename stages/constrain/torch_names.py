"""What only torch can tell of a profile: whether the operations and dtypes that it lists exist."""

import types
from collections.abc import Mapping

import torch

from models.errors import ConfigurationError, closest_first, invalid_choice
from stages.constrain.kinds import DTYPES
from stages.constrain.names import WILD
from stages.constrain.profile import Profile
from stages.torch_internals.operators import operator_names, packet_names

SHOWN = 8


def check_names(profile: Profile) -> None:
    """ConfigurationError for an operation or a dtype that this torch does not have, the nearest ones named."""
    for rule in profile.of("dtype"):
        for dtype in rule.value:
            if not isinstance(getattr(torch, str(dtype).removeprefix("torch."), None), torch.dtype):
                raise invalid_choice("accel.dtypes", dtype, [name for name in DTYPES if hasattr(torch, name)])
    for rule in profile.rules:
        for pattern in rule.operations or ():
            bare = pattern.removeprefix("!")
            if not any(character in bare for character in WILD):
                _check_operation(bare)
    for rule in profile.of("operation"):
        patterns = rule.value["allow"] if isinstance(rule.value, Mapping) else rule.value
        for pattern in patterns:
            if not any(character in pattern for character in WILD):
                _check_operation(pattern)


def _check_operation(pattern: str) -> None:
    bare = pattern.removeprefix("torch.ops.").replace("::", ".")
    registered = operator_names()
    if bare.startswith("torch."):
        _check_callable(pattern)
        return
    parts = bare.split(".")
    packets = packet_names()
    if len(parts) == 1:
        known = {packet.split("::")[1] for packet in packets}
        if bare not in known and not hasattr(torch.nn.functional, bare) and not hasattr(torch.Tensor, bare):
            raise _unknown(pattern, bare, known)
        return
    if parts[0] in ("_operator", "operator", "builtins", "math"):
        return
    packet = f"{parts[0]}::{parts[1]}"
    if packet not in packets:
        raise _unknown(pattern, f"{parts[0]}.{parts[1]}", {name.replace("::", ".") for name in packets})
    if len(parts) == 3:
        overloads = {name.partition(".")[2] or "default" for name in registered if name.partition(".")[0] == packet}
        if parts[2] not in overloads:
            raise invalid_choice("accel.denied", pattern, [f"{parts[0]}.{parts[1]}.{item}" for item in overloads])


def _check_callable(pattern: str) -> None:
    value: object = torch
    path = pattern.split(".")
    for index, part in enumerate(path[1:], start=1):
        if not hasattr(value, part):
            parent = ".".join(path[:index])
            public = {f"{parent}.{name}" for name in dir(value) if not name.startswith("__")}
            raise _unknown(pattern, f"{parent}.{part}", public)
        value = getattr(value, part)
    if isinstance(value, types.ModuleType):
        raise ConfigurationError(f"accel.denied: got {pattern!r}, a module. Try: accel.denied=['{pattern}.*']")


def _unknown(pattern: str, name: str, known: set[str]) -> ConfigurationError:
    nearest = closest_first(name, sorted(known))[:SHOWN]
    return ConfigurationError(
        f"accel.denied: got {pattern!r}, which torch {torch.__version__} does not have; "
        f"nearest of {len(known)}: {', '.join(nearest)}.\nTry: accel.denied=[{nearest[0]}]"
    )
