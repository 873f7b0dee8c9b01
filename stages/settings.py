"""What every stage may read of the configuration."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inductor_debug.models.config import DTYPES, MODES, PRECISIONS, TF32, ModelConfig
from inductor_debug.models.options import chosen, whole
from inductor_debug.stages.accelerators.config import AccelConfig

if TYPE_CHECKING:
    from inductor_debug.models.case import Case


@dataclass(frozen=True)
class BuiltIn:
    """What is known of a backend of ours before it is built.

    Attributes:
        options: whether it takes ``backend.options``.
        inductor: whether it takes ``backend.inductor``.
        declares: whether it may have rules of its own.
    """

    options: bool = False
    inductor: bool = False
    declares: bool = False


BUILT_IN: Mapping[str, BuiltIn] = {
    "eager": BuiltIn(),
    "aot_eager": BuiltIn(),
    "inductor": BuiltIn(inductor=True),
    "aot_inductor": BuiltIn(options=True, inductor=True),
    "mock": BuiltIn(options=True, declares=True),
    "aot_mock": BuiltIn(options=True, declares=True),
    "emulated": BuiltIn(declares=True),
    "dynamo": BuiltIn(options=True),
}
"""Adapters with a name of their own; any other is an installed package's (``stages.backends.plugins``) or a path."""


def may_declare(adapter: str) -> bool:
    """Whether ``backend.adapter`` may name one that has rules of its own."""
    known = BUILT_IN.get(adapter)
    return known is None or known.declares


def shown_name(name: str, adapter: str, target: str | None = None) -> str:
    """What a run is called after its backend: ``name``, unless that is only what another adapter is called.

    ``backend.adapter=my_package.MyAdapter`` alone leaves ``name`` at that of the selected group's file; the run is
    the adapter's, so it is called ``MyAdapter``. ``target`` is ``backend._target_``, which stands for ``adapter``.
    """
    adapter = target or adapter
    if adapter in (name, "dynamo") or name not in BUILT_IN:
        return name
    return adapter.replace(":", ".").rpartition(".")[2]


@dataclass
class BackendConfig:
    """What executes the graph under test.

    Attributes:
        name: one of :data:`BUILT_IN` but dynamo; for ``adapter=dynamo`` any backend registered with torch. See
            :attr:`shown` for what reports call it.
        adapter: which adapter stands behind it: one of :data:`BUILT_IN`, one that an installed package adds, or the
            dotted path of a callable that returns an AcceleratorAdapter. A callable that takes ``accel`` gets the
            profile.
        options: arguments of the adapter.
        inductor: TorchInductor configuration patched for this run alone; any of its keys.
        dynamo: TorchDynamo configuration patched for this run alone, in every stage that compiles, for every backend;
            any of its keys.
        _target_: the dotted path, in the spelling that Hydra's users know; it takes the place of ``adapter``.
    """

    name: str = "inductor"
    adapter: str = "inductor"
    options: dict[str, Any] = field(default_factory=dict)
    inductor: dict[str, Any] = field(default_factory=dict)
    dynamo: dict[str, Any] = field(default_factory=dict)
    _target_: str | None = None

    def __post_init__(self) -> None:
        if self._target_ is not None and self._target_.strip():  # a blank one stays, and is refused by its own name
            self.adapter, self._target_ = self._target_, None

    @property
    def shown(self) -> str:
        """The name in folders, summaries and reports."""
        return shown_name(self.name, self.adapter)


@dataclass
class ReferenceConfig:
    """What the test side is compared with.

    Attributes:
        backend: what executes it: ``eager`` is the module itself, any other name a backend of :data:`BUILT_IN` or of an
            installed package.
        device: where it is executed; None: on the case's.
        dtype: what it is executed in; None: in the case's.
    """

    backend: str = "eager"
    device: str | None = None
    dtype: str | None = chosen(None, DTYPES)

    @property
    def uncompiled(self) -> bool:
        """Whether it is the module itself, which no backend compiled."""
        return self.backend == "eager"


@dataclass
class Settings:
    """What every stage may read of the configuration: all but the stages' own options and the runner's.

    Attributes:
        model, accel, backend, reference: the model and its inputs, the profile, what executes the graph under test, and
            what that is compared with.
        dtype: of the model's floating parameters and inputs; with ``precision=autocast`` what autocast computes in.
        device: where the case lies, as torch names devices: ``cpu``, ``cuda``, ``cuda:1``.
        mode: ``inference`` is a forward, ``training`` a forward, a loss and a backward.
        precision: ``cast`` converts the model to ``dtype``; ``autocast`` leaves it in float32, and runs it under
            ``torch.autocast`` to ``dtype``.
        tf32: what of float32 CUDA may compute in TF32: none, convolutions (torch itself allows these) or all.
        seed: what weights and inputs are drawn from.
    """

    model: ModelConfig
    accel: AccelConfig = field(default_factory=AccelConfig)
    backend: BackendConfig = field(default_factory=BackendConfig)
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)
    dtype: str = chosen("float32", DTYPES)
    device: str = "cpu"
    mode: str = chosen("inference", MODES)
    precision: str = chosen("cast", PRECISIONS)
    tf32: str = chosen("none", TF32)
    seed: int = whole(0)

    def narrowed(self, reads: Collection[str]) -> "Settings":
        """These settings with defaults for all that is not read, which can then make no difference.

        Args:
            reads: names of fields; ``backend.dynamo`` is the only part of one. The profile (``accel``) is read with the
                backend where its adapter may take one.
        """
        kept = {name: getattr(self, name) for name in reads if "." not in name}
        if "backend" in kept and may_declare(self.backend.adapter):
            kept["accel"] = self.accel
        if "backend.dynamo" in reads and "backend" not in kept:
            kept["backend"] = BackendConfig(dynamo=self.backend.dynamo)
        return Settings(**({"model": ModelConfig()} | kept))

    def build_case(self) -> "Case":
        """The case that they describe, built anew."""
        from inductor_debug.models.build import build_case

        return build_case(
            self.model,
            dtype=self.dtype,
            device=self.device,
            mode=self.mode,
            precision=self.precision,
            tf32=self.tf32,
            seed=self.seed,
        )
