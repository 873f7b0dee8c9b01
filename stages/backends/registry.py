"""Which adapter stands behind a backend's configuration."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx

from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter, run_as_traced
from inductor_debug.stages.backends.user_adapters import adapter_at
from inductor_debug.stages.settings import BUILT_IN, BackendConfig, Settings


class EagerAdapter(AcceleratorAdapter):
    """Dynamo's graph, executed by torch operation by operation."""

    name = "eager"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return run_as_traced(gm)

    def dynamo_backend(self) -> Callable[..., Any]:
        return self.compile


class AotEagerAdapter(EagerAdapter):
    """AOTAutograd's graphs, executed by torch operation by operation."""

    name = "aot_eager"

    def dynamo_backend(self) -> Callable[..., Any]:
        return AcceleratorAdapter.dynamo_backend(self)


class InductorAdapter(AcceleratorAdapter):
    """TorchInductor, recorded.

    Args:
        inductor: options of ``torch._inductor.config``, nested or with dotted keys, for this adapter's compilations
            alone. ``fallback_random`` is on unless it is given: random operations then draw what eager draws, so that
            dropout can be compared.
    """

    name = "inductor"
    lowers = True

    def __init__(self, inductor: Mapping[str, Any] | None = None) -> None:
        self.inductor = dict(inductor or {})

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """The flat patch in force; ConfigurationError for an unknown key or a wrong type."""
        from inductor_debug.stages.torch_internals.inductor_options import check_options

        return {"fallback_random": True} | check_options(self.inductor)

    @functools.cached_property
    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:  # type: ignore[override]
        """Inductor's own."""
        from inductor_debug.stages.torch_internals.inductor import inductor_decompositions

        return inductor_decompositions()

    def validate(self) -> None:
        assert self.options

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        from inductor_debug.stages.torch_internals.inductor import compile_aot_graph

        return compile_aot_graph(gm, example_inputs, self.options)

    def dynamo_backend(self) -> Callable[..., Any]:
        """A fresh ``RecordingCompiler``: its ``graphs`` hold what each compilation made."""
        from inductor_debug.stages.torch_internals.inductor import RecordingCompiler

        return RecordingCompiler(self.options)

    @property
    def loads(self) -> bool:  # type: ignore[override]
        """Not where a subclass has a compiler of its own."""
        return type(self).dynamo_backend is InductorAdapter.dynamo_backend

    def loading_backend(self) -> Callable[..., Any]:
        from inductor_debug.stages.torch_internals.inductor import LoadingCompiler

        return LoadingCompiler(self.options) if self.loads else self.dynamo_backend()


class DynamoAdapter(AcceleratorAdapter):
    """A backend registered with torch, by this or any installed package.

    Args:
        name: as in ``torch.compile(backend=name)``.
        options: given to the backend as ``options`` where there are any.
    """

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.options = dict(options or {})

    def validate(self) -> None:
        self.dynamo_backend()

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        compiled: Callable[..., Sequence[Tensor]] = self.dynamo_backend()(gm, list(example_inputs))
        return compiled

    def dynamo_backend(self) -> Callable[..., Any]:
        from inductor_debug.stages.torch_internals.backends import registered_backend

        backend = registered_backend(self.name)
        return functools.partial(backend, options=self.options) if self.options else backend


WITH_INDUCTOR = ("inductor", "aot_inductor")
"""Adapters that take ``backend.inductor``."""

MISSING = "???"
"""A mandatory value that nobody gave, as OmegaConf writes it."""


def build_adapter(settings: Settings | BackendConfig, accel: AccelConfig | None = None) -> AcceleratorAdapter:
    """The adapter that the configuration asks for.

    Args:
        settings: a run's settings (``mock`` and ``aot_mock`` then enforce ``settings.accel``, or the ``mock`` profile
            where that is ``none``, and ``emulated`` emulates it), or a backend's configuration alone.
        accel: the profile, for a backend's configuration alone.

    Raises:
        ConfigurationError: no such adapter, options that it does not take, or a dotted path that leads to nothing.
    """
    config = settings.backend if isinstance(settings, Settings) else settings
    accel = settings.accel if isinstance(settings, Settings) else accel
    if config.adapter == MISSING or config.name == MISSING:
        from inductor_debug.stages.torch_internals.backends import registered_backends

        raise invalid_choice("backend.name", config.name, registered_backends())
    if config.inductor and config.adapter not in WITH_INDUCTOR:
        raise ConfigurationError(
            f"backend.inductor: got {', '.join(config.inductor)} with backend.adapter={config.adapter}, which does not "
            f"compile with TorchInductor; valid: backend.adapter={' or '.join(WITH_INDUCTOR)}.\nTry: backend=inductor"
        )
    if config.adapter in BUILT_IN:
        adapter = _built_in(config, accel)
    elif "." in config.adapter or ":" in config.adapter:
        adapter = adapter_at(config.adapter, config.options, accel)
    else:
        adapter = _installed(config.adapter, config.options, accel)
    return adapter


def reference_adapter(settings: Settings) -> AcceleratorAdapter | None:
    """The adapter that ``reference.backend`` names, torch's registry included; None for eager, the module itself.

    Raises:
        ConfigurationError: there is none of that name.
    """
    from inductor_debug.stages.backends.plugins import installed_adapters
    from inductor_debug.stages.torch_internals.backends import registered_backends

    name = settings.reference.backend
    if name == "eager":
        return None
    adapters = [*(item for item in BUILT_IN if item != "dynamo"), *installed_adapters()]
    if name in adapters:
        return build_adapter(BackendConfig(name=name, adapter=name))
    registered = registered_backends()
    if name not in registered:
        raise invalid_choice("reference.backend", name, dict.fromkeys([*adapters, *registered]))
    return DynamoAdapter(name)


def _installed(name: str, options: Mapping[str, Any], accel: AccelConfig | None) -> AcceleratorAdapter:
    """The adapter that an installed package offers as ``name``."""
    from inductor_debug.stages.backends.plugins import adapter_path, installed_adapters

    path = adapter_path(name)
    if path is None:
        raise invalid_choice("backend.adapter", name, [*BUILT_IN, *installed_adapters(), "package.module.Class"])
    return adapter_at(path, options, accel)


def _built_in(config: BackendConfig, accel: AccelConfig | None) -> AcceleratorAdapter:
    if config.adapter == "dynamo":
        return DynamoAdapter(config.name, config.options)
    if config.adapter in ("mock", "aot_mock"):
        return _mock(config, accel)
    if config.adapter == "aot_inductor":
        from inductor_debug.stages.backends.aot_inductor import built

        return built(config.inductor, config.options)
    if config.options:
        raise ConfigurationError(
            f"backend.options: got {', '.join(map(str, config.options))}; "
            f"valid: none, {config.adapter} takes no options."
            "\nTry: backend.options={}"
        )
    if config.adapter == "inductor":
        return InductorAdapter(config.inductor)
    if config.adapter == "emulated":
        from inductor_debug.stages.backends.emulated import EmulatedAdapter

        return EmulatedAdapter(accel)
    return EagerAdapter() if config.adapter == "eager" else AotEagerAdapter()


def _mock(config: BackendConfig, accel: AccelConfig | None) -> AcceleratorAdapter:
    from inductor_debug.stages.backends.mock import AotMockAdapter, MockAdapter
    from inductor_debug.stages.backends.mock_options import split_options

    options, rest = split_options(config.options, key="backend.options")
    if rest or options.repro_dir is not None:
        key = next(iter(rest), "repro_dir")
        raise invalid_choice("backend.options", key, ["execute", "mode", "verified_repros"])
    profile = None if accel is None or accel.name == "none" else accel
    kind = MockAdapter if config.adapter == "mock" else AotMockAdapter
    return kind(profile, options, run=True)
