"""A module's and its inputs' state, taken before a step and put back after it, bit for bit."""

from collections.abc import Iterator
from typing import Any

import torch

from models.nested import named_tensors

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


class ModuleSnapshot:
    """Everything that a forward or a backward pass may change in a module.

    Kept: content and ``.grad`` of parameters, buffers and plain tensor attributes; which objects the attributes
    are (a buffer that forward rebinds, a counter that it increments, ``training``); entries of lists and dicts
    among the attributes, one level deep. Not kept: state inside other objects that a module refers to.

    The content is copied, not trusted to version counters: ``.data`` and native kernels change memory without
    counting. The cost is one copy of the parameters, and one comparison when they are put back.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.attributes = [(child, dict(child.__dict__)) for child in module.modules()]
        self.containers: list[tuple[Any, Any]] = []
        tensors: dict[int, torch.Tensor] = {}
        for _, attributes in self.attributes:
            for value in attributes.values():
                if isinstance(value, (dict, list)):
                    self.containers.append((value, value.copy()))
                for tensor in _tensors_of_attribute(value):
                    tensors.setdefault(id(tensor), tensor)
        self.tensors = [TensorSnapshot(tensor) for tensor in tensors.values()]

    def restore(self) -> None:
        """Put everything back; touches only what has changed."""
        for child, attributes in self.attributes:
            _restore_mapping(child.__dict__, attributes)
        for container, content in self.containers:
            if isinstance(container, dict):
                _restore_mapping(container, content)
            elif [id(item) for item in container] != [id(item) for item in content]:
                container[:] = content
        for tensor in self.tensors:
            tensor.restore()


def input_snapshots(inputs: Any) -> list[TensorSnapshot]:
    """One snapshot for each tensor in the nested ``inputs``."""
    tensors = {id(tensor): tensor for _, tensor in named_tensors(inputs, "input")}
    return [TensorSnapshot(tensor) for tensor in tensors.values()]


def _tensors_of_attribute(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a module's attribute; ``_parameters`` and ``_buffers`` are such attributes."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, torch.Tensor):
                yield item


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
