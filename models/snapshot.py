"""A module's and its inputs' state, taken before a step and put back after it, bit for bit."""

import operator
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from inductor_debug.models.contents import Contents, place_of, same_bits
from inductor_debug.models.references import is_open, reachable, slots_of


class TensorSnapshot:
    """Content, memory, gradient and ``requires_grad`` of one tensor.

    Args:
        tensor: any.
        contents: earlier copies.
    """

    def __init__(self, tensor: torch.Tensor, contents: Contents) -> None:
        self.tensor = tensor
        self.memory = tensor.detach()  # the same memory, whatever ``tensor`` is made to show later
        self.content = contents.of(tensor)
        self.requires_grad = tensor.requires_grad
        self.gradient = tensor.grad if tensor.is_leaf else None
        self.gradient_content = None if self.gradient is None else self.gradient.detach().clone()
        self.differs: bool | None = None

    def changed(self) -> bool:
        """Whether the tensor holds other bits than it did, or another shape or dtype; looked at once."""
        if self.differs is None:
            self.differs = not self.content.held_by(self.tensor)
        return self.differs

    def changed_to(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor``, which is now in this one's place, holds other bits than this one did."""
        return self.changed() if tensor is self.tensor else not self.content.held_by(tensor)

    def restore(self) -> None:
        """Write back what differs. A tensor that was made to show other memory shows its own again."""
        tensor: torch.Tensor = self.tensor
        target: torch.Tensor | None = self.memory
        if place_of(tensor) != place_of(self.memory):
            tensor.data = self.memory
        elif not self.changed():
            target = None
        elif place_of(tensor) is None:
            target = tensor.detach()
        if target is not None and not self.content.held_by(target) and not self.content.put_into(target):
            tensor.data = self.content.copied()  # its memory was resized, or it was cast
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
    counting. With the same ``contents`` later snapshots take the copy again, if the tensor holds the same bits. So the
    cost is one copy of the parameters in all, and two comparisons each time.

    Args:
        roots: what to look through.
        contents: copies of earlier snapshots; None: there are none.
    """

    def __init__(self, *roots: Any, contents: Contents | None = None) -> None:
        self.attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.slots: list[_Slot] = []
        self.containers: list[tuple[Any, Any]] = []
        self.tensors: dict[int, TensorSnapshot] = {}
        self.states: list[tuple[Callable[[Any], Any], Any]] = []
        contents = contents or Contents()
        for _, value in reachable({str(index): root for index, root in enumerate(roots)}):
            if isinstance(value, torch.Tensor):
                self.tensors[id(value)] = TensorSnapshot(value, contents)
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
