"""The mock backends as ``torch.compile`` takes them, by name or as functions::

    torch.compile(model, backend="mock", options={"profile": "strict16", "execute": "inductor"})

A violation of a strict profile leaves its reproductions, and a graph that TorchInductor fails to compile behind the
checks the smallest program that shows it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, fx

from inductor_debug.stages.accelerators.profile import PREFIX, load_config
from inductor_debug.stages.backends.mock import AotMockAdapter, MockAdapter
from inductor_debug.stages.backends.mock_options import split_options
from inductor_debug.stages.minify.handed import leave_script
from inductor_debug.stages.torch_internals.frames import WatchedBackend

_adapters: dict[tuple[Any, ...], MockAdapter] = {}
"""What a call of torch.compile asked for → its adapter, so that graphs are numbered and the profile is read once."""


def _adapter(kind: type[MockAdapter], mode: str | None, options: Mapping[str, Any] | None) -> MockAdapter:
    given = dict(options or {})
    environment = sorted((key, value) for key, value in os.environ.items() if key.startswith(PREFIX))
    file = Path(str(given.get("profile", "")))
    edited = file.stat().st_mtime_ns if file.is_file() else 0
    key = (kind, mode, edited, repr(sorted(given.items(), key=str)), *environment)
    if key not in _adapters:
        mock_options, profile = split_options(given, key="options", mode=mode)
        config = None
        if profile:
            config = load_config(profile.pop("profile", "mock"), **profile)
        _adapters[key] = kind(config, mock_options, failed=leave_script)
    return _adapters[key]


def _watched(kind: type[MockAdapter]) -> Callable[[Callable[..., Any]], WatchedBackend]:
    def tell(told: str, mode: str | None = None, options: Any = None) -> None:
        _adapter(kind, mode, options).tell_outside(told)

    def watched(backend: Callable[..., Any]) -> WatchedBackend:
        found = WatchedBackend(backend, tell)
        found.executor = "torch"
        return found

    return watched


@_watched(MockAdapter)
def mock_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Tensor],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Dynamo's graph checked against a profile, then executed by torch; ``torch.compile(model, backend="mock")``.

    Args:
        mode: ``mode=`` of torch.compile: TorchInductor executes, in that mode.
        options: ``options=`` of torch.compile. ``profile`` is a name or path, by default ``mock`` with MOCK_STRICT,
            MOCK_ALIGNMENT and MOCK_MAX_MEMORY applied. The fields of
            :class:`~stages.backends.mock_options.MockOptions` say how to execute, and what a failure leaves. Other
            keys override the profile's fields.

    Raises:
        ProfileViolated: the profile is strict and the graph breaks it.
        ConfigurationError: a profile, field, mode or environment variable is not valid.
    """
    return _adapter(MockAdapter, mode, options).dynamo_backend()(gm, example_inputs)


@_watched(AotMockAdapter)
def aot_mock_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Tensor],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """As :func:`mock_backend`, for AOTAutograd's forward and backward; ``torch.compile(model, backend="aot_mock")``.

    Args:
        gm: Dynamo's graph.
        example_inputs: its inputs, fake or real.
        mode, options: as for :func:`mock_backend`.
    """
    return _adapter(AotMockAdapter, mode, options).dynamo_backend()(gm, example_inputs)
