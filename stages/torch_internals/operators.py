"""The dispatcher's list of operators, and decompositions that torch keeps to itself."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions


@functools.cache
def operator_names() -> frozenset[str]:
    """Every registered operator with its overload: ``aten::add.Tensor``, ``aten::relu`` for a default overload."""
    return frozenset(torch._C._dispatch_get_all_op_names())


def normalizations() -> dict[Any, Callable[..., Any]]:
    """Decompositions of normalizations and softmax, overload → function, which core ATen keeps whole."""
    aten = torch.ops.aten
    packets = (
        aten.native_batch_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_functional,
        aten.native_layer_norm, aten.native_group_norm, aten._softmax, aten._log_softmax,
    )  # fmt: skip
    return get_decompositions(packets)
