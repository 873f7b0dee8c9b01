"""What a module, or its inputs, refer to: through attributes, containers and objects of a user's own classes."""

import copy
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils.data

_CLOSED = frozenset({"torch", "numpy", "builtins", *sys.stdlib_module_names})
_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_DATA = (torch.utils.data.Dataset, torch.utils.data.DataLoader)
_REGISTRIES = ("_parameters", "_buffers", "_modules")


def is_open(value: Any) -> bool:
    """Whether the attributes of ``value`` are looked at: a module's, or an object's of a class that is not torch's,
    NumPy's or Python's own (whose registries and caches reach far)."""
    if isinstance(value, torch.nn.Module):
        return True
    if isinstance(value, (type, torch.Tensor, *_CALLABLES, *_DATA)):
        return False
    if not isinstance(getattr(value, "__dict__", None), dict):
        return False
    return type(value).__module__.partition(".")[0] not in _CLOSED


def reached(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Everything that the roots refer to, and they, each object once, with its path, in the order of a walk in depth.

    Attributes are joined by a point, as ``named_parameters`` does (those of a root called "" have no prefix), and so
    are keys and indices, as :func:`models.nested.named_tensors` does.

    Args:
        roots: by name.
    """
    seen: dict[int, Any] = {}
    waiting = list(roots.items())[::-1]
    while waiting:
        path, value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # which keeps it, so that its id stays its own
        yield path, value
        waiting += [(_join(path, key), item) for key, item in list(_parts(value))[::-1]]


def tensors_in(roots: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors among what is :func:`reached`, by path."""
    return {path: value for path, value in reached(roots) if isinstance(value, torch.Tensor)}


def holds_tensors(value: Any) -> bool:
    """Whether any tensor is :func:`reached` from ``value``."""
    return any(isinstance(item, torch.Tensor) for _, item in reached({"": value}))


def generators_of(*roots: Any) -> list[torch.Generator]:
    """The random generators that a module, or its inputs, hold themselves, always in the same order."""
    named = {str(index): root for index, root in enumerate(roots)}
    return [value for _, value in reached(named) if isinstance(value, torch.Generator)]


def deep_copy(roots: Any) -> Any:
    """A copy of everything, in which what shares memory or is one object goes on doing so.

    A tensor that an operation made (``weight`` of ``torch.nn.utils.weight_norm``), which torch refuses to copy, is
    copied without its history.

    Raises:
        Exception: an object that can't be copied, whatever it raises.
    """
    made = {id(tensor): tensor.detach().clone() for tensor in tensors_in({"": roots}).values() if not tensor.is_leaf}
    return copy.deepcopy(roots, made)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        return
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=True)
    elif isinstance(value, (list, set, deque, tuple, frozenset)):
        yield from enumerate(value)
    elif is_open(value):
        for name, item in value.__dict__.items():
            yield "" if name in _REGISTRIES else name, item


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path and key != "" else path or str(key)
