"""Which weights a forward reads. Of those that nothing reads, a pass says nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from inductor_debug.models.torch_private import TorchDispatchMode, pytree

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def floating_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Floating parameters and buffers of more than one element by name, each once; those without data are left out."""
    weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: tensor
        for name, tensor in weights.items()
        if tensor.dtype in FLOATS and tensor.layout == torch.strided and tensor.numel() > 1 and not tensor.is_meta
    }


class ReadWeights:
    """A module, called as it is, that notes which of its weights its operations take.

    Attributes:
        unread: names of the weights that no operation has taken, in the module's order.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._weights = floating_weights(module)
        self._taken: set[int] = set()

    @property
    def unread(self) -> list[str]:
        return [name for name, tensor in self._weights.items() if id(tensor) not in self._taken]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _Arguments(self._taken):
            return self.module(*args, **kwargs)


class _Arguments(TorchDispatchMode):
    """Puts the ``id`` of each tensor that an operation takes into ``taken``."""

    supports_higher_order_operators = True

    def __init__(self, taken: set[int]) -> None:
        super().__init__()
        self.taken = taken

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.taken.update(id(value) for value in pytree.tree_iter((args, kwargs)) if isinstance(value, torch.Tensor))
        return func(*args, **kwargs)
