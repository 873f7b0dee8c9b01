"""Python values and tensors as source."""

import enum
import functools
import inspect
import math
import types
from collections.abc import Callable
from typing import Any

import torch

from inductor_debug.stages.minify.candidate import span
from inductor_debug.stages.repro import NotReproducible

FEW = 8
"""Elements up to which a tensor's numbers stand in the script."""

_DEEPEST = 6
_PLAIN = (type(None), bool, int, str, bytes, type(...), complex, torch.dtype, torch.layout, torch.memory_format)
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, types.MethodDescriptorType)


class Values:
    """Writes values.

    Args:
        reference: source of a function, a class or a module.
        wanted: whether a program reads an attribute of this name.
        stored: whether tensors keep their numbers, in a file beside the script, rather than have them drawn.

    Attributes:
        tensors: those kept, by the name that the source has.
    """

    def __init__(self, reference: Callable[[Any], str], wanted: Callable[[str], bool], *, stored: bool) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.stored = stored
        self._reference, self._wanted = reference, wanted

    def source(self, value: Any, name: str, deep: int = 0) -> str:
        """A value as an expression.

        Args:
            value: any.
            name: of a tensor's numbers, where they are stored.
            deep: how far it lies within others.

        Raises:
            NotReproducible: nothing short makes such a value.
        """
        if deep > _DEEPEST:
            raise NotReproducible(f"{name} is nested over {_DEEPEST} deep")
        inner = functools.partial(self._inner, name=name, deep=deep + 1)
        match value:
            case torch.Tensor():
                return self.tensor(value, name)
            case enum.Enum():
                return f"{self._reference(type(value))}.{value.name}"
            case _ if type(value) in _PLAIN:
                return repr(value)
            case float():
                return repr(float(value)) if math.isfinite(value) else f'float("{value}")'
            case torch.device():
                return f"torch.device({str(value)!r})"
            case torch.Size():
                return f"torch.Size({list(value)})"
            case functools.partial():
                given = [inner(value.func), *map(inner, value.args)]
                given += [f"{key}={inner(item)}" for key, item in value.keywords.items()]
                return f"functools.partial({', '.join(given)})"
            case range() | slice():
                parts = (value.start, value.stop, value.step)
                return f"{type(value).__name__}({', '.join(map(inner, parts))})"
            case _ if isinstance(value, _NAMED):
                return self._reference(value)
            case list() | set() | frozenset() | tuple() if type(value) in (list, set, frozenset, tuple):
                return self._sequence(value, inner)
            case tuple() if hasattr(value, "_fields"):
                return f"{self._reference(type(value))}({', '.join(map(inner, value))})"
            case dict() if type(value).__module__ in ("builtins", "collections"):
                return "{" + ", ".join(f"{inner(key)}: {inner(item)}" for key, item in value.items()) + "}"
            case dict():
                return f"{self._reference(type(value))}({', '.join(f'{key}={inner(value[key])}' for key in value)})"
        return self._object(value, inner)

    def tensor(self, value: torch.Tensor, name: str) -> str:
        """A tensor of this shape, dtype and layout: drawn, or with its own numbers."""
        value = value.detach()
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise NotReproducible(f"{name} is a {type(value).__name__} of layout {value.layout}")
        sizes = [1 if step == 0 else size for size, step in zip(value.shape, value.stride(), strict=True)]
        real = value.as_strided(sizes, value.stride())
        made = self._numbers(real, name)
        if not real.is_contiguous() and real.numel() == span(real.shape, real.stride()):
            kind = "" if real.dtype is torch.float32 else f", dtype={real.dtype}"
            made = f"torch.empty_strided({tuple(real.shape)}, {real.stride()}{kind}).copy_({made})"
        made += f".expand({', '.join(map(str, value.shape))})" if real.shape != value.shape else ""
        return made + (f".to({str(value.device)!r})" if value.device.type != "cpu" else "")

    def _numbers(self, value: torch.Tensor, name: str) -> str:
        given = ", ".join(map(str, value.shape))
        kind = "" if value.dtype is torch.float32 else f", dtype={value.dtype}"
        first = value.flatten()[0].item() if value.numel() else 0
        if value.numel() and bool((value == first).all()):
            return f"torch.{'ones' if first == 1 else 'zeros'}({_shape(value)}{kind})" if first in (0, 1) else (
                f"torch.full({tuple(value.shape)}, {first!r}{kind})")  # fmt: skip
        if not value.numel():
            return f"torch.zeros({_shape(value)}{kind})"
        if value.dtype is torch.int64 and torch.equal(
            value.flatten().cpu(), torch.arange(first, first + value.numel())
        ):
            made = f"torch.arange({f'{first}, ' if first else ''}{first + value.numel()})"
            return made + (f".view({given})" if value.dim() != 1 else "")
        if value.numel() <= FEW and not value.is_floating_point() and not value.is_complex():
            return f"torch.tensor({value.tolist()}{kind if value.dtype not in (torch.int64, torch.bool) else ''})"
        if self.stored or value.is_complex() or not bool(value.isfinite().all()):
            self.tensors[name] = value.cpu().flatten()
            return f"stored({name!r}).view({given})"
        if value.dtype is torch.bool:
            return f"torch.rand({given}) < {float(value.double().mean()):.2g}"
        if not value.is_floating_point():
            low, high = int(value.min()), int(value.max()) + 1
            kind = "" if value.dtype is torch.int64 else kind
            return f"torch.randint({f'{low}, ' if low else ''}{high}, ({given},){kind})"
        return _drawn(value, given)

    def _inner(self, value: Any, *, name: str, deep: int) -> str:
        count = len(self.tensors)
        return self.source(value, f"{name}_{count}" if isinstance(value, torch.Tensor) else name, deep)

    def _sequence(self, value: Any, inner: Callable[[Any], str]) -> str:
        items = ", ".join(map(inner, sorted(value, key=repr) if isinstance(value, set | frozenset) else value))
        match value:
            case tuple():
                return f"({items}{',' * (len(value) == 1)})"
            case list():
                return f"[{items}]"
        return f"{type(value).__name__}([{items}])"

    def _object(self, value: Any, inner: Callable[[Any], str]) -> str:
        """What a program reads of an object that only holds data."""
        if isinstance(value, torch.nn.Module) or not hasattr(value, "__dict__") or callable(value):
            raise NotReproducible(f"a {type(value).__qualname__} can't be written")
        names = [*vars(value), *(key for key in dir(type(value)) if _is_data(type(value), key))]
        wanted = [key for key in dict.fromkeys(names) if key.isidentifier() and self._wanted(key)]
        kept = {key: getattr(value, key) for key in wanted if hasattr(value, key)}
        return f"types.SimpleNamespace({', '.join(f'{key}={inner(item)}' for key, item in kept.items())})"


def _is_data(cls: type, name: str) -> bool:
    """Whether a class has a property or a value, no method, under this name."""
    found = inspect.getattr_static(cls, name)
    return not name.startswith("__") and (
        isinstance(found, property) or not (callable(found) or hasattr(found, "__get__"))
    )


def _shape(value: torch.Tensor) -> str:
    return ", ".join(map(str, value.shape)) if value.dim() else "()"


def _drawn(value: torch.Tensor, given: str) -> str:
    """Numbers of about this mean and deviation, from the seed."""
    deviation, mean = (float(x) for x in torch.std_mean(value.double(), correction=0))
    numbers = f"torch.randn({given})" if value.dim() else "torch.randn(())"
    plain = abs(mean) < deviation / 2 and 0.3 < deviation < 3
    numbers += "" if plain else f" * {deviation:.2g} + {mean:.2g}"
    return numbers if value.dtype is torch.float32 else f"({numbers}).to({value.dtype})"
