"""What a module, or its inputs, refer to: through attributes, containers and objects of a user's own classes."""

import argparse
import copy
import dataclasses
import sys
import types
from collections import UserDict, UserList, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils.data

_CLOSED = frozenset({"torch", "numpy", "builtins", *sys.stdlib_module_names})
_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_DATA = (torch.utils.data.Dataset, torch.utils.data.DataLoader)
_ATOMS = (bool, int, float, complex, str, bytes, type(None))
_HOLDERS = (types.SimpleNamespace, argparse.Namespace, UserDict, UserList)
"""Python's own classes whose objects are looked at: all that they hold is their user's."""
_REGISTRIES = ("_parameters", "_buffers", "_modules")


def is_open(value: Any) -> bool:
    """Whether the attributes of ``value`` are looked at. They are for a module, and for an object of a class that is
    not torch's, NumPy's or Python's own, whose registries and caches hold much else. Of these, the classes that only
    hold what they get are looked at too."""
    if isinstance(value, (torch.nn.Module, *_HOLDERS)):
        return True
    if isinstance(value, (type, torch.Tensor, *_CALLABLES, *_DATA)):
        return False
    if not isinstance(getattr(value, "__dict__", None), dict) and not slots_of(type(value)):
        return False
    return str(type(value).__module__).partition(".")[0] not in _CLOSED


def attributes(value: Any) -> dict[str, Any]:
    """What the attributes of an object hold, those in slots too; a new dict."""
    found = dict(getattr(value, "__dict__", {}))
    for name in slots_of(type(value)):
        if hasattr(value, name):  # a slot may be empty
            found[name] = getattr(value, name)
    return found


def fields_of(value: Any) -> dict[str, Any]:
    """What the fields of a dataclass's object hold, as they are stored: a class may refuse to have them read."""
    stored = attributes(value)
    named = {item.name: stored.get(item.name, item.default) for item in dataclasses.fields(value)}
    return {name: held for name, held in named.items() if held is not dataclasses.MISSING}


def slots_of(kind: type) -> tuple[str, ...]:
    """The names of a class's slots, as its objects' attributes are called."""
    names = []
    for base in kind.__mro__:
        own = vars(base).get("__slots__", ())
        for name in (own,) if isinstance(own, str) else own:
            hidden = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if hidden else name)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


Trail = tuple[Any, Any] | None
"""How an object is reached: the trail of what refers to it, and its name or key there."""


def reachable(roots: Mapping[str, Any]) -> Iterator[tuple[Trail, Any]]:
    """Everything that the roots refer to, and they, each object once, in the order of a walk in depth.

    Numbers, strings and None are left out.

    Args:
        roots: by name.
    """
    seen: dict[int, Any] = {}
    waiting: list[tuple[Trail, Any]] = []
    waiting += [((None, name), root) for name, root in roots.items()][::-1]
    while waiting:
        trail, value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # which keeps it, so that its id stays its own
        yield trail, value
        waiting += [((trail, key), item) for key, item in _parts(value)][::-1]


def tensors_in(roots: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors among what is :func:`reachable`, by path.

    Attributes are joined by a point, as ``named_parameters`` does (those of a root called "" have no prefix), and so
    are keys and indices, as :func:`models.nested.named_tensors` does.
    """
    return {_path(trail): value for trail, value in reachable(roots) if isinstance(value, torch.Tensor)}


def holds_tensors(value: Any) -> bool:
    """Whether any tensor is :func:`reachable` from ``value``."""
    return any(isinstance(item, torch.Tensor) for _, item in reachable({"": value}))


def holders(value: Any) -> set[int]:
    """The ids of ``value``, and of what is :func:`reachable` from it, where a tensor is reachable from them."""
    referring: dict[int, list[int]] = {}
    found = []
    for _, item in reachable({"": value}):
        if isinstance(item, torch.Tensor):
            found.append(id(item))
        for _, part in _parts(item):
            referring.setdefault(id(part), []).append(id(item))
    known = set(found)
    while found:
        new = [place for place in referring.get(found.pop(), ()) if place not in known]
        known.update(new)
        found += new
    return known


def generators_of(*roots: Any) -> list[torch.Generator]:
    """The random generators that a module, or its inputs, hold themselves, always in the same order."""
    named = {str(index): root for index, root in enumerate(roots)}
    return [value for _, value in reachable(named) if isinstance(value, torch.Generator)]


def deep_copy(roots: Any, copies: Mapping[int, Any] | None = None) -> Any:
    """A copy of everything, in which what shares memory or is one object goes on doing so.

    A tensor that an operation made (``weight`` of ``torch.nn.utils.weight_norm``), which torch refuses to copy, is
    copied without its history.

    Args:
        roots: what to copy.
        copies: what is to be the copy of an object, by its id.

    Raises:
        Exception: an object that can't be copied, whatever it raises.
    """
    made = {id(tensor): tensor.detach().clone() for tensor in tensors_in({"": roots}).values() if not tensor.is_leaf}
    made |= copies or {}
    return copy.deepcopy(roots, made)


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    return ((key, item) for key, item in _all_parts(value) if not isinstance(item, _ATOMS))


def _all_parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, torch.Tensor):
        return
    if isinstance(value, dict):  # no other mapping: what it does for an item is its own affair
        yield from dict.items(value)
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, (list, set, deque, tuple, frozenset)):
        yield from enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from fields_of(value).items()
    if is_open(value):
        for name, item in attributes(value).items():
            yield "" if name in _REGISTRIES else name, item


def _path(trail: Trail) -> str:
    parts = []
    while trail is not None:
        trail, key = trail
        parts.append(str(key))
    return ".".join(part for part in reversed(parts) if part)
