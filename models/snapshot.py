"""A module's and its inputs' state, taken before a step and put back after it, bit for bit."""

import operator
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from inductor_debug.models.nested import extent, is_strided, strided_parts
from inductor_debug.models.references import is_open, reachable, slots_of
from inductor_debug.models.torch_private import storage_identity

_OWN_MEMORY = ("cpu", "cuda", "meta")
_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TensorSnapshot:
    """Content, memory, gradient and ``requires_grad`` of one tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.memory = tensor.detach()  # the same memory, whatever ``tensor`` is made to show later
        self.content = self.memory.clone()
        self.requires_grad = tensor.requires_grad
        self.gradient = tensor.grad if tensor.is_leaf else None
        self.gradient_content = None if self.gradient is None else self.gradient.detach().clone()
        self.differs: bool | None = None

    def changed(self) -> bool:
        """Whether the tensor holds other bits than it did, or another shape or dtype; looked at once."""
        if self.differs is None:
            self.differs = not _holds(self.tensor, self.content)
        return self.differs

    def changed_to(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor``, which is now in this one's place, holds other bits than this one did."""
        return self.changed() if tensor is self.tensor else not _holds(tensor, self.content)

    def restore(self) -> None:
        """Write back what differs. A tensor that was made to show other memory shows its own again."""
        tensor, target = self.tensor, self.memory
        if _place(tensor) != _place(target):
            tensor.data = target
        elif not self.changed():
            target = self.content
        elif _place(target) is None:
            target = tensor.detach()
        if not _holds(target, self.content):
            if _shaped_like(target, self.content):
                with torch.no_grad():
                    target.copy_(self.content)
            else:  # its memory was resized, or it was cast
                tensor.data = self.content
        if tensor.is_leaf:
            tensor.requires_grad_(self.requires_grad)
            tensor.grad = self.gradient
            gradient, content = self.gradient, self.gradient_content
            if gradient is not None and content is not None and not same_bits(gradient, content):
                gradient.detach().copy_(content)


class Snapshot:
    """Everything that a forward or a backward pass may change in a module, or in its inputs.

    Kept is, in whatever is reachable from the roots: content and ``.grad`` of tensors; entries of lists, dicts, sets
    and deques; state of random generators. Kept is also which objects the attributes of modules and of other objects
    are: a buffer that forward rebinds, a counter that it increments, ``training``. Not kept: state inside objects of
    torch's, NumPy's and Python's own classes that are none of these, in datasets, closures and globals.

    The content is copied, not trusted to version counters: ``.data`` and native kernels change memory without
    counting. The cost is one copy of the parameters, and one comparison when they are put back.
    """

    def __init__(self, *roots: Any) -> None:
        self.attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.slots: list[_Slot] = []
        self.containers: list[tuple[Any, Any]] = []
        self.tensors: dict[int, TensorSnapshot] = {}
        self.states: list[tuple[Callable[[Any], Any], Any]] = []
        for _, value in reachable({str(index): root for index, root in enumerate(roots)}):
            if isinstance(value, torch.Tensor):
                self.tensors[id(value)] = TensorSnapshot(value)
            elif isinstance(value, torch.Generator):
                self.states.append((value.set_state, value.get_state()))
            elif isinstance(value, random.Random):
                self.states.append((value.setstate, value.getstate()))
            if isinstance(value, (dict, list, set, deque)):
                self.containers.append((value, _content(value)))
            opened = is_open(value)
            if (opened and hasattr(value, "__dict__")) or (isinstance(value, torch.Tensor) and value.__dict__):
                self.attributes.append((value.__dict__, dict(value.__dict__)))
            self.slots += [_Slot(value, name) for name in slots_of(type(value))] if opened else []

    def of(self, tensor: torch.Tensor) -> TensorSnapshot:
        """What was kept of a tensor that was there."""
        return self.tensors[id(tensor)]

    def restore(self) -> None:
        """Put everything back; touches only what has changed."""
        for attributes, saved in self.attributes:
            _restore_mapping(attributes, saved)
        for slot in self.slots:
            slot.restore()
        for container, content in self.containers:
            _restore_container(container, content)
        for tensor in self.tensors.values():
            tensor.restore()
        for restore, state in self.states:
            restore(state)


_EMPTY = object()


class _Slot:
    """What an object has in one of its slots, which may be nothing."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self.saved = getattr(owner, name, _EMPTY)

    def restore(self) -> None:
        if getattr(self.owner, self.name, _EMPTY) is self.saved:
            return
        if self.saved is _EMPTY:
            object.__delattr__(self.owner, self.name)
        else:
            object.__setattr__(self.owner, self.name, self.saved)  # where the class is frozen too


def _content(container: Any) -> Any:
    """A copy, made by the built-in type that ``container`` is or derives from."""
    kinds: tuple[Any, ...] = (dict, list, set, deque)
    return next(kind.copy(container) for kind in kinds if isinstance(container, kind))


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


def _place(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """What tells whether two tensors show the same memory in the same way; None where that can't be told.

    It can't on a device of PrivateUse1, whose tensors' storages may be empty.
    """
    if not is_strided(tensor) or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if tensor.device.type not in _OWN_MEMORY:
        return None
    storage = storage_identity(tensor.untyped_storage())
    return storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def _holds(tensor: torch.Tensor, content: torch.Tensor) -> bool:
    return tensor is content or (_shaped_like(tensor, content) and same_bits(tensor, content))


def _shaped_like(tensor: torch.Tensor, content: torch.Tensor) -> bool:
    """Whether device, layout, shape and dtype are those of ``content``, and the memory reaches as far as they need."""
    if (tensor.device, tensor.dtype, tensor.layout) != (content.device, content.dtype, content.layout):
        return False
    if tensor.is_nested != content.is_nested:
        return False
    if not is_strided(tensor):
        return [part.shape for part in strided_parts(tensor)] == [part.shape for part in strided_parts(content)]
    if tensor.shape != content.shape:
        return False
    return _place(tensor) is None or extent(tensor) * tensor.element_size() <= tensor.untyped_storage().nbytes()


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """True where both hold the same bits, on whatever devices: 0.0 and -0.0 differ, a NaN is equal to itself.

    A tensor without values (meta) holds the same as any other of its shape; False where the bits can't be looked at.
    """
    left, right = left.detach(), right.detach()
    if left.is_meta or right.is_meta:
        return left.is_meta == right.is_meta
    if left.device != right.device or left.device.type not in _OWN_MEMORY:
        left, right = left.cpu(), right.cpu()
    jagged = left.layout == right.layout == torch.jagged
    if not jagged and ({type(left), type(right)} != {torch.Tensor} or left.layout != right.layout):
        return False
    mine, others = strided_parts(left), strided_parts(right)
    pairs = list(zip(mine, others, strict=False))
    return (
        bool(pairs)
        and len(mine) == len(others)
        and all(
            part.shape == other.shape and part.dtype == other.dtype and _same_strided(part, other)
            for part, other in pairs
        )
    )


def _same_strided(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.is_quantized or right.is_quantized:
        comparable = left.is_quantized and right.is_quantized and left.qscheme() == right.qscheme()
        return comparable and torch.equal(left.int_repr(), right.int_repr()) and torch.equal(left, right)
    left, right = (side.resolve_conj().resolve_neg() for side in (left, right))
    if left.dtype == torch.complex128:
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    integer = _INTEGER_OF_SIZE.get(left.element_size())
    return integer is not None and torch.equal(left.view(integer), right.view(integer))
