"""What only torch can tell of a profile: whether the operations and dtypes that it lists exist."""

import difflib
import fnmatch
import functools
import importlib
import logging
import re
import types
from collections import defaultdict
from typing import Any

import torch

from inductor_debug.models.errors import ConfigurationError, closest_first, example_of, invalid_choice
from inductor_debug.stages.accelerators.profile import Profile, completed, listed
from inductor_debug.stages.accelerators.rule_kinds import DTYPES, dtypes_in
from inductor_debug.stages.graphs.operation_names import PYTHON_ROOTS, WILD, normal
from inductor_debug.stages.torch_internals.operators import operator_names

SHOWN = 8

log = logging.getLogger(__name__)


def check_names(profile: Profile, *, libraries: bool = True) -> None:
    """ConfigurationError for an operation or a dtype that this torch does not have, the nearest ones named.

    Args:
        profile: whose names are checked.
        libraries: False where a library that registers operators may not be imported here. An operation of an unknown
            namespace then passes with a warning.
    """
    for item in profile.written or completed(profile).written:
        if item.rule.rule == "dtype":
            _check_dtypes(item.rule.value, item.value_key)
    for pattern, key in listed(profile):
        if libraries or not _of_another_library(pattern):
            _check_operation(pattern, key)
        else:
            log.warning("%s: %s is of a library that is not imported here: not looked up", key, pattern)


def _of_another_library(pattern: str) -> bool:
    root, _, name = normal(pattern).partition(".")
    known = {packet.partition(".")[0] for packet in _overloads()} | set(PYTHON_ROOTS)
    return bool(name) and not difflib.get_close_matches(root, known)


def _check_dtypes(value: Any, key: str) -> None:
    for dtype, example in dtypes_in(value):
        if not isinstance(getattr(torch, str(dtype).removeprefix("torch."), None), torch.dtype):
            known = [name for name in DTYPES if hasattr(torch, name)]
            raise invalid_choice(key, dtype, known, where=f"torch {torch.__version__}",
                                 example=example_of(key, example))  # fmt: skip


def _check_operation(pattern: str, key: str) -> None:
    bare = normal(pattern)
    parts = bare.split(".")
    if any(character in bare for character in WILD):
        _check_wild(pattern, bare, key)
    elif parts[0] == "torch":
        _check_callable(pattern, key, torch)
    elif parts[0] in PYTHON_ROOTS:
        _check_callable(pattern, key, importlib.import_module(parts[0]))
    elif len(parts) == 1:
        known = {packet.partition(".")[2] for packet in _overloads()}
        if bare in {packet.partition(".")[0] for packet in _overloads()} - known:
            raise _group(key, pattern, "a namespace")
        if bare not in known and not hasattr(torch.nn.functional, bare) and not hasattr(torch.Tensor, bare):
            raise _unknown(key, pattern, bare, known)
    else:
        packet = f"{parts[0]}.{parts[1]}"
        if packet not in _overloads():
            raise _unknown(key, pattern, packet, set(_overloads()))
        if len(parts) == 3 and parts[2] not in _overloads()[packet]:
            full = [f"{packet}.{item}" for item in sorted(_overloads()[packet])]
            raise invalid_choice(key, pattern, full, example=example_of(key, "[{}]"))


def _check_wild(pattern: str, bare: str, key: str) -> None:
    """Of torch's own operators: those of a library may be registered later, and callables can't be listed."""
    if not bare.startswith(("aten.", "prims.")):
        return
    names = {name for packet, overloads in _overloads().items()
             for name in (packet, *(f"{packet}.{item}" for item in overloads))}  # fmt: skip
    if not fnmatch.filter(names, bare):
        literal = re.split(r"[*?\[]", bare)[0].rstrip(".")
        raise _unknown(key, pattern, literal, names)


@functools.cache
def _overloads() -> dict[str, set[str]]:
    """Packet (``aten.add``) → its overloads, of all that is registered."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in operator_names():
        packet, _, overload = name.partition(".")
        found[packet.replace("::", ".")].add(overload or "default")
    return dict(found)


def _check_callable(pattern: str, key: str, value: object) -> None:
    path = pattern.split(".")
    for index, part in enumerate(path[1:], start=1):
        if not hasattr(value, part):
            parent = ".".join(path[:index])
            public = {f"{parent}.{name}" for name in dir(value) if not name.startswith("__")}
            raise _unknown(key, pattern, f"{parent}.{part}", public)
        value = getattr(value, part)
    if isinstance(value, types.ModuleType):
        raise _group(key, pattern, "a module")


def _group(key: str, pattern: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"got {pattern!r}, {what}", key=key, valid="its operations", hint=example_of(key, f"[{pattern}.*]")
    )


def _unknown(key: str, pattern: str, name: str, known: set[str]) -> ConfigurationError:
    nearest = closest_first(name, sorted(known))[:SHOWN]
    return ConfigurationError(
        f"got {pattern!r}, which torch {torch.__version__} does not have; "
        f"nearest of {len(known)}: {', '.join(nearest)}",
        key=key,
        hint=example_of(key, f"[{nearest[0]}]"),
    )
