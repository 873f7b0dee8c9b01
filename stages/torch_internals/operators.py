"""The dispatcher's list of operators."""

import functools

import torch


@functools.cache
def operator_names() -> frozenset[str]:
    """Every registered operator with its overload: ``aten::add.Tensor``, ``aten::relu`` for a default overload."""
    return frozenset(torch._C._dispatch_get_all_op_names())


@functools.cache
def packet_names() -> frozenset[str]:
    """Every registered operator without its overload: ``aten::add``."""
    return frozenset(name.partition(".")[0] for name in operator_names())
