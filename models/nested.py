"""Tensors in nested containers: tuples, lists, mappings (``ModelOutput`` too), named tuples and dataclasses."""

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
