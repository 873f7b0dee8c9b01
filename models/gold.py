"""Float64 arithmetic for the gold standard."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_BIT_CASTS = (torch.Tensor.view,)
"""Functions whose dtype argument reinterprets memory: never rewritten."""


@contextmanager
def double_arithmetic() -> Iterator[None]:
    """Inside, float32 asked for by name and the default dtype both mean float64."""
    default = torch.get_default_dtype()
    _Float32MeansFloat64.default = default
    torch.set_default_dtype(torch.float64)
    try:
        with _Float32MeansFloat64():
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
