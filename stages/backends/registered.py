"""The backend ``dynamo``: any that is registered with torch, by name."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.execution import Executor, executor_of
from inductor_debug.stages.backends.front import Level
from inductor_debug.stages.settings import BackendConfig
from inductor_debug.stages.torch_internals.backends import registered_backend


class RegisteredAdapter(AcceleratorAdapter):
    """A backend registered with torch, by this or any installed package.

    Args:
        name: as in ``torch.compile(backend=name)``.
        options: given to the backend as ``options`` where there are any.
    """

    level: Level = "dynamo"

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.options = dict(options or {})

    def validate(self) -> None:
        self.dynamo_backend()

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return self.dynamo_backend()(gm, list(example_inputs))

    @property
    def executor(self) -> Executor:
        return executor_of(registered_backend(self.name))

    def dynamo_backend(self) -> Callable[..., Any]:
        backend = registered_backend(self.name)
        return functools.partial(backend, options=self.options) if self.options else backend


def configured(config: BackendConfig, accel: AccelConfig | None) -> RegisteredAdapter:
    """The adapter of a configuration."""
    return RegisteredAdapter(config.name, config.options)
