"""A module's and its inputs' state, taken before a step and put back after it, bit for bit."""

import operator
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.utils.data

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TensorSnapshot:
    """Content, gradient and ``requires_grad`` of one tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.content = tensor.detach().clone()
        self.requires_grad = tensor.requires_grad
        self.gradient = tensor.grad if tensor.is_leaf else None
        self.gradient_content = None if self.gradient is None else self.gradient.detach().clone()

    def restore(self) -> None:
        """Write back what differs. A tensor whose storage was resized or cast gets its old content as ``.data``."""
        tensor = self.tensor
        if tensor.shape != self.content.shape or tensor.dtype != self.content.dtype:
            tensor.data = self.content
        else:
            _write_back(tensor, self.content)
        if tensor.is_leaf:
            tensor.requires_grad_(self.requires_grad)
            tensor.grad = self.gradient
            if self.gradient is not None and self.gradient_content is not None:
                _write_back(self.gradient, self.gradient_content)


class Snapshot:
    """Everything that a forward or a backward pass may change in a module, or in its inputs.

    Kept, in whatever is reached from the roots: content and ``.grad`` of tensors; which objects the attributes of
    modules and of other objects are (a buffer that forward rebinds, a counter that it increments, ``training``);
    entries of lists, dicts, sets and deques; state of random generators. Not kept: state inside objects of torch's,
    NumPy's and Python's own classes that are none of these, in datasets, in slots, closures and globals.

    The content is copied, not trusted to version counters: ``.data`` and native kernels change memory without
    counting. The cost is one copy of the parameters, and one comparison when they are put back.
    """

    def __init__(self, *roots: Any) -> None:
        self.attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.containers: list[tuple[Any, Any]] = []
        self.tensors: list[TensorSnapshot] = []
        self.states: list[tuple[Callable[[Any], Any], Any]] = []
        for value in _reached(roots):
            if isinstance(value, torch.Tensor):
                self.tensors.append(TensorSnapshot(value))
            elif isinstance(value, torch.Generator):
                self.states.append((value.set_state, value.get_state()))
            elif isinstance(value, random.Random):
                self.states.append((value.setstate, value.getstate()))
            elif isinstance(value, (dict, list, set, deque)):
                self.containers.append((value, value.copy()))
            elif _is_open(value):
                self.attributes.append((value.__dict__, dict(value.__dict__)))

    def restore(self) -> None:
        """Put everything back; touches only what has changed."""
        for attributes, saved in self.attributes:
            _restore_mapping(attributes, saved)
        for container, content in self.containers:
            _restore_container(container, content)
        for tensor in self.tensors:
            tensor.restore()
        for restore, state in self.states:
            restore(state)


def generators_of(*roots: Any) -> list[torch.Generator]:
    """The random generators that a module, or its inputs, hold themselves, always in the same order."""
    return [value for value in _reached(roots) if isinstance(value, torch.Generator)]


def _reached(roots: Iterable[Any]) -> Iterator[Any]:
    """Everything that the roots refer to, and they, each object once."""
    seen: dict[int, Any] = {}
    waiting = list(roots)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value  # which keeps it, so that its id stays its own
        yield value
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, set, deque, tuple, frozenset)):
            waiting.extend(value)
        elif _is_open(value):
            waiting.extend(value.__dict__.values())


_CLOSED = frozenset({"torch", "numpy", "builtins", *sys.stdlib_module_names})


def _is_open(value: Any) -> bool:
    """Whether the attributes of ``value`` are looked at: a module's, or an object's of a class that is not torch's,
    NumPy's or Python's own (whose registries and caches reach far)."""
    if isinstance(value, torch.nn.Module):
        return True
    if isinstance(value, (type, *_CALLABLES, *_DATA)) or not isinstance(getattr(value, "__dict__", None), dict):
        return False
    return type(value).__module__.partition(".")[0] not in _CLOSED


_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_DATA = (torch.utils.data.Dataset, torch.utils.data.DataLoader)


def _restore_container(container: Any, content: Any) -> None:
    if isinstance(container, dict):
        _restore_mapping(container, content)
    elif len(container) != len(content) or any(map(operator.is_not, container, content)):
        container.clear()
        container.update(content) if isinstance(container, set) else container.extend(content)


def _restore_mapping(current: dict[Any, Any], saved: dict[Any, Any]) -> None:
    for key in [key for key in current if key not in saved]:
        del current[key]
    for key, value in saved.items():
        if key not in current or current[key] is not value:
            current[key] = value


def _write_back(tensor: torch.Tensor, content: torch.Tensor) -> None:
    if not same_bits(tensor, content):
        with torch.no_grad():
            tensor.detach().copy_(content)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """True where both hold the same bits: 0.0 and -0.0 differ, a NaN is equal to itself."""
    integer = _INTEGER_OF_SIZE.get(left.element_size())
    plain = left.layout == torch.strided and not left.is_quantized and type(right) is torch.Tensor
    if integer is None or not plain or left.is_meta or left.is_conj() or left.is_neg():
        return False
    return torch.equal(left.detach().view(integer), right.view(integer))
