"""A nested output as a flat list of named leaves: ``logits``, ``hidden_states[3]``, ``past['key'][0]``."""

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType, NoneType
from typing import Any

import numpy
import torch

from inductor_debug.models.nested import may_be_object
from inductor_debug.models.references import attributes, fields_of, holders, holds_tensors, is_open

LEAVES = (bool, int, float, complex, str, bytes, type(None))


def flatten(value: Any, path: str = "output") -> dict[str, Any]:
    """Leaves of ``value`` by path, in the structure's own order.

    Dicts, ModelOutputs, lists, tuples, namedtuples and dataclasses are entered. So are objects of a user's own classes
    that hold tensors (a key-value cache): of them tensors, numbers, strings and None count. A tensor, a number, a
    string and None are leaves, and so is an object of any other type; a NumPy array is a tensor. An empty container is
    one leaf, the container itself, so that ``[]`` against ``[tensor]`` shows. A jagged nested tensor has its offsets as
    a leaf of their own. Top-level fields are named without ``path``: ``logits``, not ``output.logits``; top-level items
    are ``output[0]``.

    Raises:
        ValueError: a container that holds itself.
    """
    holding = holders(value)
    list(_containers(value, path, path, True, (), holding))  # raises where a container holds itself
    found: dict[str, Any] = {}
    for place, leaf in _walk(value, path, True, (), holding):
        number = 2
        unique = place
        while unique in found:  # {"output": [x], 0: y}: a key may be called like the root
            unique, number = f"{place} ({number})", number + 1
        found[unique] = leaf
    return found


def containers(value: Any, path: str = "output") -> dict[str, type]:
    """The type of every container in ``value`` that is not empty, by path; see :func:`flatten`.

    Raises:
        ValueError: a container that holds itself.
    """
    return dict(_containers(value, f"the whole of {path}", path, True, (), holders(value)))


def _containers(
    value: Any, name: str, path: str, top: bool, above: tuple[int, ...], holding: set[int]
) -> Iterator[tuple[str, type]]:
    """``name``: what the root is called, which no key can be: ``{"output": …}`` and ``[…]`` share paths."""
    if id(value) in above:
        raise ValueError(f"{path} holds itself; such a structure can't be compared")
    parts = _children(value, above, holding)
    if parts:
        yield name, type(value)
    for key, child in parts:
        place = _join(path, key, top)
        yield from _containers(child, place, place, False, (*above, id(value)), holding)


def _walk(value: Any, path: str, top: bool, above: tuple[int, ...], holding: set[int]) -> Iterator[tuple[str, Any]]:
    parts = _children(value, above, holding)
    if not parts:
        yield path, _as_tensor(value)
    if isinstance(value, torch.Tensor) and value.layout == torch.jagged:
        yield f"{path}.offsets()", value.offsets()  # type: ignore[attr-defined]
    for key, child in parts:
        yield from _walk(child, _join(path, key, top), False, (*above, id(value)), holding)


def _as_tensor(value: Any) -> Any:
    """A NumPy array or scalar as a tensor with a copy of its content, a float64 as the float that it is. Other values,
    and arrays of other things, stay as they are."""
    if isinstance(value, numpy.float64):
        return value.item()
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        try:
            return torch.tensor(value, device="cpu")
        except TypeError:  # strings, objects
            return value
    return value


def _join(path: str, key: Any, top: bool) -> str:
    if isinstance(key, str) and key.isidentifier():
        return key if top else f"{path}.{key}"
    return f"{path}[{key!r}]"


def _children(value: Any, above: tuple[int, ...], holding: set[int]) -> list[tuple[Any, Any]]:
    """``above``: ids of what holds ``value``, for an object may know that; ``holding``: of what holds tensors."""
    if isinstance(value, torch.Tensor) and value.is_nested and value.layout == torch.strided:
        return list(enumerate(value.unbind()))  # which torch compares by row alone, and tells no shape of
    if isinstance(value, (torch.Tensor, *LEAVES)):
        return []
    if isinstance(value, Mapping):  # transformers' ModelOutput is an OrderedDict
        return list(value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return list(fields_of(value).items())
    if id(value) not in holding or not may_be_object(value):
        return []
    known = {*above, id(value)}
    items = [(name, item) for name, item in attributes(value).items() if id(item) not in known]
    return [(name, item) for name, item in items if isinstance(item, LEAVES) or id(item) in holding]


def container_kind(value: Any) -> str:
    """A leaf's kind in words: ``tensor``, ``None``, ``number``, ``string``, or the type's name."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, complex)):
        return "number"
    if isinstance(value, (str, bytes)):
        return "string"
    return type(value).__name__


_UNIQUE = (
    NoneType,
    type,
    FunctionType,
    BuiltinFunctionType,
    ModuleType,
    Enum,
    torch.dtype,
    torch.layout,
    torch.memory_format,
)


def equal_leaves(reference: Any, test: Any) -> bool | None:
    """Whether two leaves of one type that are no tensors are equal; None where that can't be told.

    What defines no equality is equal where it is the same class, function or module. So is an object of a user's own
    class with the same attributes, none of which holds tensors (else it would have been entered). Generators of torch's
    are equal that will draw the same.
    """
    if isinstance(reference, _UNIQUE):
        return reference is test
    if isinstance(reference, torch.Generator):
        return reference.device == test.device and torch.equal(reference.get_state(), test.get_state())
    if holds_tensors((reference, test)):  # a set of them has no order
        return None
    try:
        if type(reference).__eq__ is not object.__eq__:
            return bool(reference == test)
        if is_open(reference) and not isinstance(reference, torch.nn.Module):
            return attributes(reference) == attributes(test) or None
    except (TypeError, ValueError, RuntimeError):  # arrays of objects, and whatever a class makes of ==
        return None
    return None
