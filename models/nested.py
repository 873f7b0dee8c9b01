"""Tensors in nested containers: tuples, lists, mappings (``ModelOutput`` too), named tuples and dataclasses."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch


def named_tensors(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in ``value`` in order, each with its path, e.g. ``output.hidden_states.3`` for ``path="output"``.

    Anything that is neither a tensor nor one of the containers named above holds no tensors for this function.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    else:
        for key, item in _items(value):
            yield from named_tensors(item, f"{path}.{key}")


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """``value`` rebuilt with ``function`` applied to every tensor; other leaves are kept as they are."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return _rebuilt_mapping(value, {key: map_tensors(function, item) for key, item in value.items()})
    if isinstance(value, (tuple, list)):
        items = [map_tensors(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {key: map_tensors(function, item) for key, item in _items(value)}
        return dataclasses.replace(value, **changes)
    return value


def map_sharing(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """:func:`map_tensors`, but what shares memory in ``value`` shares memory in the result too.

    The same tensor twice stays one tensor, and views of one storage stay views of one: ``function`` then gets the
    storage, as far as they reach, as a 1-D tensor. Tensors that share a storage in different dtypes, or require
    gradients, or are not strided are converted each on its own. What ``mark_dynamic`` and its kin noted is kept.
    """
    tensors = {id(tensor): tensor for _, tensor in named_tensors(value, "")}
    groups: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    for tensor in tensors.values():
        if tensor.layout == torch.strided and not tensor.requires_grad and not tensor.is_meta:
            groups.setdefault((tensor.device, _memory(tensor), tensor.dtype), []).append(tensor)
    converted: dict[int, torch.Tensor] = {}
    for members in groups.values():
        if len(members) > 1:
            first = members[0]
            whole = function(first.as_strided((max(map(_extent, members)),), (1,), 0))
            for member in members:
                view = whole.as_strided(member.shape, member.stride(), member.storage_offset())
                converted[id(member)] = _marked(view, member)
    for key, tensor in tensors.items():
        if key not in converted:
            converted[key] = _marked(function(tensor), tensor)
    return map_tensors(lambda tensor: converted[id(tensor)], value)


def _marked(converted: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """With the marks that Dynamo reads: ``mark_dynamic`` leaves them in ``__dict__``, which a new tensor lacks."""
    if converted is not tensor and converted.shape == tensor.shape:
        marks = {name: copy.copy(value) for name, value in vars(tensor).items() if name.startswith("_dynamo_")}
        vars(converted).update(marks)
    return converted


def _memory(tensor: torch.Tensor) -> int:
    """What tells the memory of one storage from another's: its address, or the storage's own on a device that gives no
    address (one of PrivateUse1 whose tensors are Python's)."""
    storage = tensor.untyped_storage()
    try:
        return storage.data_ptr()
    except RuntimeError:
        return storage._cdata


def _extent(tensor: torch.Tensor) -> int:
    """Elements of the storage up to the last one of a strided tensor. The storage's own size may be unknown."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) if tensor.numel() else 0


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(getattr(value, "_fields"), value, strict=True)  # noqa: B009 - a tuple to mypy
    elif isinstance(value, (tuple, list)):
        yield from enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            if item.init:
                yield item.name, getattr(value, item.name)


def _rebuilt_mapping(original: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(original) is dict:
        return items
    if dataclasses.is_dataclass(original):  # transformers' ModelOutput: a dataclass that is a mapping too
        return type(original)(**items)
    try:
        return type(original)(items)  # type: ignore[call-arg]
    except TypeError:  # a mapping with a constructor of its own, such as defaultdict
        return items
