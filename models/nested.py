"""Tensors in nested values: tuples, lists, mappings (``ModelOutput`` too), named tuples, dataclasses, and objects of a
user's own classes that hold tensors (a cache)."""

import copy
import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from inductor_debug.models.references import attributes, fields_of, holders, is_open, tensors_in
from inductor_debug.models.torch_private import coo_parts, storage_identity
from inductor_debug.models.torch_text import MARK


def named_tensors(value: Any, path: str, *, objects: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor in ``value`` in order, each with its path, e.g. ``output.hidden_states.3`` for ``path="output"``.

    Args:
        objects: False leaves out what objects hold that are none of the containers named above.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    elif may_be_object(value):
        yield from tensors_in({path: value}).items() if objects else ()
    else:
        for key, item in _items(value):
            yield from named_tensors(item, f"{path}.{key}", objects=objects)


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    """``value`` rebuilt with ``function`` applied to every tensor; other leaves are kept as they are."""
    return _mapped(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, value, {}, holders(value))


def kept(value: Any) -> Any:
    """``value`` rebuilt with clones of its tensors, detached, and of torch's generators, as both are now."""

    def keep(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone()
        return leaf.clone_state() if isinstance(leaf, torch.Generator) else leaf

    return _mapped(keep, value, {}, holders(value))


ITEMS = 100_000
"""Items that are taken from an iterator at most: a generator may have no end."""


def drained(value: Any) -> Any:
    """``value`` with Python's own iterators (a generator, ``map``, ``zip``) in it as lists of what they give.

    An iterator can be read once alone, and computes as it is read; a compiler may hand a list out in its place. It is
    looked for in tuples, lists and dicts.
    """
    if isinstance(value, Iterator) and type(value).__module__ == "builtins":
        return [drained(item) for item in itertools.islice(value, ITEMS)]
    if type(value) in (tuple, list):
        items = [drained(item) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    if type(value) is dict:
        parts = {key: drained(item) for key, item in value.items()}
        return value if all(parts[key] is value[key] for key in value) else parts
    return value


def _mapped(function: Callable[[Any], Any], value: Any, made: dict[int, Any], holding: set[int]) -> Any:
    """``function``: of every leaf; ``made``: the copies of objects by their originals' id, for an object may hold
    itself; ``holding``: the ids of what holds tensors."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if id(value) in made:
        return made[id(value)]
    if isinstance(value, Mapping):
        return _rebuilt_mapping(value, {key: _mapped(function, item, made, holding) for key, item in value.items()})
    if isinstance(value, (tuple, list)):
        items = [_mapped(function, item, made, holding) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if _is_dataclass(value) or (id(value) in holding and may_be_object(value)):
        made[id(value)] = result = copy.copy(value)
        for key, item in list(_items(value)):
            object.__setattr__(result, key, _mapped(function, item, made, holding))
        return result
    return function(value)


def map_sharing(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """:func:`map_tensors`, but what shares memory in ``value`` shares memory in the result too (:func:`converted`).

    Tensors that require gradients are converted each on its own. What ``mark_dynamic`` and its kin noted is kept.
    """
    tensors = {id(tensor): tensor for _, tensor in named_tensors(value, "")}
    results = converted(function, [tensor for tensor in tensors.values() if not tensor.requires_grad])
    results |= {id(tensor): function(tensor) for tensor in tensors.values() if tensor.requires_grad}
    return map_tensors(lambda tensor: _marked(results[id(tensor)], tensor), value)


def converted(
    function: Callable[[torch.Tensor], torch.Tensor], tensors: Iterable[torch.Tensor]
) -> dict[int, torch.Tensor]:
    """What ``function`` gives for each tensor, by the tensor's id.

    Views of one storage become views of one: ``function`` then gets the storage, as far as they reach, as a 1-D tensor.
    Tensors that share a storage in different dtypes, or are not strided, are converted each on its own.
    """
    tensors = list(tensors)
    groups: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    for tensor in tensors:
        if is_strided(tensor) and not tensor.is_meta:
            view = tensor.is_conj(), tensor.is_neg()
            groups.setdefault((tensor.device, memory_of(tensor), tensor.dtype, *view), []).append(tensor)
    found: dict[int, torch.Tensor] = {}
    for members in groups.values():
        if len(members) > 1:
            first = members[0].detach()
            whole = function(first.as_strided((max(map(extent, members)),), (1,), 0))
            for member in members:
                found[id(member)] = whole.as_strided(member.shape, member.stride(), member.storage_offset())
    for tensor in tensors:
        if id(tensor) not in found:
            found[id(tensor)] = function(tensor)
    return found


def counterpart(dtype: torch.dtype, target: torch.dtype) -> torch.dtype:
    """What a tensor of ``dtype`` becomes in a model of the floating dtype ``target``.

    Floating dtypes become ``target``, complex ones its precision's, at least complex64, and others stay.
    """
    if dtype.is_complex:
        return torch.complex128 if target == torch.float64 else torch.complex64
    return target if dtype.is_floating_point else dtype


def cast_in_place(tensors: Iterable[torch.Tensor], becomes: Callable[[torch.dtype], torch.dtype], *,
                  anew: bool = False) -> None:  # fmt: skip
    """Give tensors other dtypes. They stay the objects that they are, and share memory as before (:func:`converted`).

    Args:
        becomes: gives a dtype's new one.
        anew: True gives each new memory, even where its dtype stays.
    """
    chosen = {id(tensor): tensor for tensor in tensors if anew or becomes(tensor.dtype) != tensor.dtype}

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(becomes(tensor.dtype), copy=anew)

    for key, new in converted(cast, chosen.values()).items():
        chosen[key].data = new
        if new.layout == torch.jagged:  # whose values are an attribute of the object
            vars(chosen[key]).update(vars(new))


def _marked(converted: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """With the marks that Dynamo reads: ``mark_dynamic`` leaves them in ``__dict__``, which a new tensor lacks."""
    has_shape = is_strided(tensor) or tensor.layout != torch.strided
    if converted is not tensor and has_shape and converted.shape == tensor.shape:
        copy_marks(tensor, converted)
    return converted


def copy_marks(tensor: torch.Tensor, to: torch.Tensor) -> None:
    """Give a tensor what ``mark_dynamic`` and its kin noted of another one."""
    marks = {name: copy.copy(value) for name, value in vars(tensor).items() if name.startswith(MARK)}
    vars(to).update(marks)


def memory_of(tensor: torch.Tensor) -> int:
    """What tells the memory of one storage from another's: its address, or the storage's own on a device that gives no
    address (one of PrivateUse1 whose tensors are Python's)."""
    storage = tensor.untyped_storage()
    try:
        return storage.data_ptr()
    except RuntimeError:
        return storage_identity(storage)


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether a tensor is strided and no nested one, whose rows may be of several sizes."""
    return tensor.layout == torch.strided and not tensor.is_nested


def strided_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors that hold a tensor: itself, or what a sparse or nested one consists of; empty if torch names
    none."""
    if tensor.is_nested:
        return [tensor.values(), tensor.offsets()] if tensor.layout == torch.jagged else list(tensor.unbind())  # type: ignore[attr-defined]
    if tensor.layout == torch.sparse_coo:
        return list(coo_parts(tensor))
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor] if tensor.layout == torch.strided else []


def extent(tensor: torch.Tensor) -> int:
    """Elements of the storage up to the last one of a strided tensor. The storage's own size may be unknown."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) if tensor.numel() else 0


def may_be_object(value: Any) -> bool:
    """Whether ``value`` is an object of a user's own class, no container and no module."""
    if isinstance(value, (Mapping, tuple, list, torch.nn.Module)) or _is_dataclass(value):
        return False
    return is_open(value)


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _items(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(getattr(value, "_fields"), value, strict=True)  # noqa: B009 - a tuple to mypy
    elif isinstance(value, (tuple, list)):
        yield from enumerate(value)
    elif _is_dataclass(value):
        yield from fields_of(value).items()
    elif may_be_object(value):
        yield from attributes(value).items()


def _rebuilt_mapping(original: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(original) is dict:
        return items
    if dataclasses.is_dataclass(original):  # transformers' ModelOutput: a dataclass that is a mapping too
        return type(original)(**items)
    try:
        return type(original)(items)  # type: ignore[call-arg]
    except TypeError:  # a mapping with a constructor of its own, such as defaultdict
        return items
