"""What this package relies on of torch's private names below its stages, and no module of ``models`` beside.

The stages' own are in :mod:`stages.torch_internals`; both rooms are listed in ``docs/torch-versions.md``.

- ``torch.utils._python_dispatch.TorchDispatchMode`` and ``torch.utils._pytree``, for which there are no public names;
- ``torch._ops``: the classes of operators, their ``_schema`` and ``_can_decompose``;
- ``torch.overrides._get_current_function_mode_stack``, ``_pop_mode_temporarily``;
- ``torch._C._set_cudnn_allow_tf32``, ``_set_cublas_allow_tf32``, ``_set_cudnn_benchmark``,
  ``_set_cudnn_deterministic``;
- ``UntypedStorage._cdata``; ``Tensor._indices``, ``_values``.
"""

from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.overrides import _pop_mode_temporarily as without_last_function_mode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "HigherOrderOperator",
    "OpOverload",
    "TorchDispatchMode",
    "allow_tf32",
    "coo_parts",
    "function_modes",
    "has_decomposition",
    "pytree",
    "schema_of",
    "set_cudnn_benchmark",
    "set_cudnn_deterministic",
    "storage_identity",
    "without_last_function_mode",
]


def allow_tf32(*, convolutions: bool, products: bool) -> None:
    """``torch.backends.cudnn.allow_tf32`` and ``cuda.matmul.allow_tf32``, which set what the new names say too.

    Through the functions behind them, because torch's own test utilities freeze the attributes for the whole process.
    """
    torch._C._set_cudnn_allow_tf32(convolutions)
    torch._C._set_cublas_allow_tf32(products)


def set_cudnn_benchmark(value: bool) -> None:
    """``torch.backends.cudnn.benchmark``, also where torch's own test utilities froze the attribute."""
    torch._C._set_cudnn_benchmark(value)


def set_cudnn_deterministic(value: bool) -> None:
    """``torch.backends.cudnn.deterministic``, also where torch's own test utilities froze the attribute."""
    torch._C._set_cudnn_deterministic(value)


def schema_of(operator: OpOverload) -> Any:
    """Its ``FunctionSchema``: ``arguments``, ``returns``, ``is_mutable``."""
    return operator._schema


def has_decomposition(operator: OpOverload) -> bool:
    """Whether ``operator.decompose`` takes it apart (CompositeImplicit), rather than giving NotImplemented."""
    return operator._can_decompose()


def storage_identity(storage: torch.UntypedStorage) -> int:
    """What tells a storage from others where it gives no address."""
    return storage._cdata


def coo_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and values of a sparse COO tensor; the public methods refuse one that is not coalesced."""
    return tensor._indices(), tensor._values()
