"""A backend as a library function is given it: by name, as a callable for ``torch.compile``, or as an adapter."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.execution import Executor, executor_of
from inductor_debug.stages.backends.front import Level
from inductor_debug.stages.backends.plugins import installed_adapters
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.backends.user_adapters import check_adapter
from inductor_debug.stages.settings import BUILT_IN, BackendConfig, Settings

GivenBackend = Callable[..., Any]
"""A callable for ``torch.compile``: a function of a graph and example inputs."""


class _Function(AcceleratorAdapter):
    """A backend as ``torch.compile`` takes it: a function of a graph and example inputs."""

    level: Level = "dynamo"

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        return self.function(gm, list(example_inputs))

    def dynamo_backend(self) -> Callable[..., Any]:
        return self.function

    @property
    def executor(self) -> Executor:
        return executor_of(self.function)


def named(backend: str | AcceleratorAdapter | GivenBackend, inductor: Mapping[str, Any]) -> BackendConfig:
    """The backend's configuration; one that is given as an object has no other name than its own."""
    if not isinstance(backend, str):
        return BackendConfig("object", "object")
    known = backend in BUILT_IN or backend in installed_adapters() or "." in backend
    return BackendConfig(backend, backend if known else "dynamo", inductor=dict(inductor))


def maker_of(settings: Settings, backend: str | AcceleratorAdapter | GivenBackend) -> Callable[[], AcceleratorAdapter]:
    """What makes the adapter: anew each time for a name, the same one for an object.

    Raises:
        ConfigurationError: an adapter that is given is not whole, see :func:`check_adapter`.
    """
    if isinstance(backend, str):
        return lambda: build_adapter(settings)
    adapter = adapter_of(backend)
    return lambda: adapter


def adapter_of(backend: AcceleratorAdapter | GivenBackend) -> AcceleratorAdapter:
    """The adapter that is given, one of its class, or one of a callable for ``torch.compile``.

    Raises:
        ConfigurationError: a class of something else; it is not whole, see :func:`check_adapter`.
    """
    if isinstance(backend, type):
        if not issubclass(backend, AcceleratorAdapter):
            valid = "a name, a function of a graph and its inputs, an adapter, or a class of adapters"
            raise ConfigurationError(f"got the class {backend.__name__}", key="backend", valid=valid)
        backend = backend()
    adapter = backend if isinstance(backend, AcceleratorAdapter) else _Function(backend)
    check_adapter(adapter, type(adapter).__name__)
    return adapter


def function_of(adapter: AcceleratorAdapter) -> GivenBackend | None:
    """The callable for ``torch.compile`` that an adapter was made of, if it was."""
    return adapter.function if isinstance(adapter, _Function) else None
