"""What this package relies on of torch's private names below its stages, and no module of ``models`` beside.

The stages' own are in :mod:`stages.torch_internals`; both rooms are listed in ``docs/reference/torch-versions.md``.

- ``torch.utils._python_dispatch.TorchDispatchMode`` and ``torch.utils._pytree``, for which there are no public names;
- ``torch._subclasses.fake_tensor.FakeTensorMode``, and the module's logger;
- ``torch._ops``: the classes of operators, their ``_schema`` and ``_can_decompose``;
- ``torch.overrides._get_current_function_mode_stack``, ``_pop_mode_temporarily``;
- ``torch._C._set_cudnn_allow_tf32``, ``_set_cublas_allow_tf32``, ``_set_cudnn_benchmark``,
  ``_set_cudnn_deterministic``;
- ``torch.nn.Module._parameters``, ``_buffers``, ``_modules``, ``_non_persistent_buffers_set``;
- ``UntypedStorage._cdata``; ``Tensor._indices``, ``_values``;
- ``torch.autograd._get_sequence_nr``, ``torch._C._current_autograd_node``, and ``_sequence_nr`` of a node.
"""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.overrides import _pop_mode_temporarily as without_last_function_mode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "FakeTensorMode",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "OwnParts",
    "TorchDispatchMode",
    "UnseenMode",
    "allow_tf32",
    "coo_parts",
    "function_modes",
    "has_decomposition",
    "number_of_last_node",
    "number_of_running_node",
    "own_parts",
    "pytree",
    "schema_of",
    "set_cudnn_benchmark",
    "set_cudnn_deterministic",
    "storage_identity",
    "unlogged_shape_errors",
    "without_last_function_mode",
]


class UnseenMode(TorchDispatchMode):
    """A mode of operators, higher-order ones too, under which compiled code runs as it does without it."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """That compiled code need not be compiled anew, nor left, for this mode."""
        return True


def cudnn_allows_tf32() -> bool | None:
    """``torch.backends.cudnn.allow_tf32``; None where torch refuses, for its new names say otherwise."""
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        return None


def allow_tf32(*, convolutions: bool | None, products: bool | None) -> None:
    """``torch.backends.cudnn.allow_tf32`` and ``cuda.matmul.allow_tf32``, which set what the new names say too.

    Through the functions behind them, because torch's own test utilities freeze the attributes for the whole process.
    None leaves one as it is.
    """
    if convolutions is not None:
        torch._C._set_cudnn_allow_tf32(convolutions)
    if products is not None:
        torch._C._set_cublas_allow_tf32(products)


def set_cudnn_benchmark(value: bool) -> None:
    """``torch.backends.cudnn.benchmark``, also where torch's own test utilities froze the attribute."""
    torch._C._set_cudnn_benchmark(value)


def set_cudnn_deterministic(value: bool) -> None:
    """``torch.backends.cudnn.deterministic``, also where torch's own test utilities froze the attribute."""
    torch._C._set_cudnn_deterministic(value)


@dataclass(frozen=True)
class OwnParts:
    """What a module itself holds, by name: None where it has registered that there is nothing.

    Attributes:
        parameters, buffers, modules: the module's own dicts.
        passing: names of buffers that its state dict leaves out.
    """

    parameters: dict[str, torch.nn.Parameter | None]
    buffers: dict[str, torch.Tensor | None]
    modules: dict[str, torch.nn.Module | None]
    passing: set[str]


def own_parts(module: torch.nn.Module) -> OwnParts:
    """What a module itself holds, without what its children do."""
    return OwnParts(module._parameters, module._buffers, module._modules, module._non_persistent_buffers_set)


def schema_of(operator: OpOverload) -> Any:
    """Its ``FunctionSchema``: ``arguments``, ``returns``, ``is_mutable``."""
    return operator._schema


def has_decomposition(operator: OpOverload) -> bool:
    """Whether ``operator.decompose`` takes it apart (CompositeImplicit), rather than giving NotImplemented."""
    return operator._can_decompose()


def number_of_last_node() -> int:
    """The number of the node that autograd made last in this thread: within an operation that of the operation."""
    return torch.autograd._get_sequence_nr() - 1


def number_of_running_node() -> int | None:
    """The number of the node that backward is at in this thread; None outside backward."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def storage_identity(storage: torch.UntypedStorage) -> int:
    """What tells a storage from others where it gives no address."""
    return storage._cdata


def coo_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values of a sparse COO tensor; the public methods refuse one that is not coalesced."""
    return tensor._indices(), tensor._values()


@contextlib.contextmanager
def unlogged_shape_errors() -> Iterator[None]:
    """Fake tensors log each operation that refuses its arguments, with a traceback; here that is an answer."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = was
