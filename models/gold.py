"""Float64 arithmetic for the gold standard."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import overrides
from torch.overrides import TorchFunctionMode

from inductor_debug.models.torch_private import function_modes, without_last_function_mode

_BIT_CASTS = (torch.Tensor.view,)
"""Functions whose dtype argument reinterprets memory: never rewritten."""


@contextmanager
def double_arithmetic(*, unseen: bool = True) -> Iterator[None]:
    """Inside, float32 asked for by name and the default dtype both mean float64.

    Args:
        unseen: ``torch.overrides.has_torch_function`` does not count the mode that does this. Where it does,
            ``nn.MultiheadAttention`` and ``nn.TransformerEncoder`` leave the fast path that they take outside, which
            at padded places gives other numbers than the slow one.
    """
    default = torch.get_default_dtype()
    _Float32MeansFloat64.default = default
    torch.set_default_dtype(torch.float64)
    try:
        with _Float32MeansFloat64(), _not_counted() if unseen else nullcontext():
            yield
    finally:
        torch.set_default_dtype(default)


@contextmanager
def as_written() -> Iterator[None]:
    """Inside, in :func:`double_arithmetic`, float32 and the default dtype mean what they did outside of it."""
    before, _Float32MeansFloat64.active = _Float32MeansFloat64.active, False
    default = torch.get_default_dtype()
    torch.set_default_dtype(_Float32MeansFloat64.default)
    try:
        yield
    finally:
        _Float32MeansFloat64.active = before
        torch.set_default_dtype(default)


def _not_counted() -> AbstractContextManager[Any]:
    """Inside, ``torch.overrides.has_torch_function`` answers as it would without :class:`_Float32MeansFloat64`.

    The function is replaced where torch's modules look it up. Who imported it by name, as ``torch.nn.functional`` did
    to hand its calls to the mode, has torch's own.
    """
    original = overrides.has_torch_function

    def has_torch_function(relevant_args: Any) -> bool:
        modes = [] if torch.compiler.is_compiling() else function_modes()
        if not modes or not isinstance(modes[-1], _Float32MeansFloat64):
            return bool(original(relevant_args))
        with without_last_function_mode():
            return bool(original(relevant_args))

    return mock.patch.object(overrides, "has_torch_function", has_torch_function)


class _Float32MeansFloat64(TorchFunctionMode):
    active = True
    default = torch.float32

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.active:
            return func(*args, **kwargs)
        if func is torch.Tensor.float:
            return args[0].double(**kwargs)
        if func not in _BIT_CASTS:
            args = tuple(_wider(value) for value in args)
            kwargs = {key: _wider(value) for key, value in kwargs.items()}
        return func(*args, **kwargs)


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
