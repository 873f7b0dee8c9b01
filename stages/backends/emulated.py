"""The emulated backend: AOT graphs with a profile's numerics, on the host."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig
from inductor_debug.stages.accelerators.number_formats import parse_format
from inductor_debug.stages.accelerators.profile import Profile, validate_profile
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.emulation import Emulation
from inductor_debug.stages.backends.front import Front
from inductor_debug.stages.emulation.findings import Findings
from inductor_debug.stages.emulation.graph import emulated_graph
from inductor_debug.stages.emulation.weights import WeightCache
from inductor_debug.stages.settings import BackendConfig


class EmulatedAdapter(AcceleratorAdapter):
    """Executes AOTAutograd's forward and backward with the numerics of a profile.

    Attention is traced as its matmuls and its softmax, so that each is emulated. A graph given to
    :meth:`compile` is taken as it is.

    Args:
        accel: the profile; its ``numerics`` must say something.

    Attributes:
        findings: what the graphs did, so far.
        weights: rounded weights.
    """

    name = "emulated"

    def __init__(self, accel: AccelConfig | None = None) -> None:
        self._config = AccelConfig() if accel is None else accel
        self._profile: Profile | None = None
        self.findings = Findings()
        self.weights = WeightCache()

    def capabilities(self) -> Profile:
        """The validated profile; ConfigurationError where it is not valid."""
        if self._profile is None:
            self._profile = validate_profile(self._config)
        return self._profile

    def validate(self) -> None:
        if not self.capabilities().numerics.stated:
            raise ConfigurationError(
                f"backend=emulated: the profile {self._config.name!r} states no numerics to emulate; valid: a profile "
                "with accel.numerics (storage, operands, accumulate, casts, tile, fallback).\n"
                "Try: accel.numerics.storage.float32=bfloat16"
            )

    @property
    def roundoff(self) -> float:  # type: ignore[override]
        """Of the coarsest format of tensors and operands; 0 where there is none."""
        numerics = self.capabilities().numerics
        names = (*numerics.storage.values(), *numerics.operands.values())
        return max((parse_format(name, numerics).roundoff for name in names), default=0.0)

    def storage_rounding(self) -> "EmulatedAdapter | None":
        """The same, with the formats of tensors and operands alone: no narrow sums, casts, tiles or host."""
        numerics = self.capabilities().numerics
        if not (numerics.storage or numerics.operands):
            return None
        kept = ("storage", "operands", "block_size", "block_axis", "saturate")
        formats = NumericsConfig(**{name: getattr(numerics, name) for name in kept})
        return EmulatedAdapter(AccelConfig(name=f"{self._config.name}, formats alone", numerics=formats))

    def emulation(self) -> Emulation:
        """What was found since the adapter was made."""
        profile = self.capabilities()
        return Emulation(
            profile.name,
            describe(profile.numerics),
            self.findings,
            profile.numerics,
            warns=self._config.strict is False,
            more={"weights": {"rounded": self.weights.misses, "reused": self.weights.hits}},
        )

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """The graph with the profile's numerics. ConfigurationError where it states none."""
        self.validate()
        return emulated_graph(gm, self.record(gm), self.capabilities(), self.weights, self.findings)

    def dynamo_backend(self) -> Callable[..., Any]:
        front = Front(self.compile, recompute=False)

        def backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            with sdpa_kernel(SDPBackend.MATH):
                return front(gm, example_inputs)

        return backend


def describe(numerics: NumericsConfig) -> str:
    """What of the numerics is emulated: formats, sums, casts, tiles."""
    parts = [f"{dtype} stored as {name}" for dtype, name in numerics.storage.items()]
    parts += [f"{dtype} operands as {name}" for dtype, name in numerics.operands.items()]
    if numerics.accumulate:
        every = "" if numerics.accumulate_block is None else f" every {numerics.accumulate_block} terms"
        parts.append(f"sums rounded to {numerics.accumulate}{every}")
    parts += [f"{wide} cast to {narrow}" for wide, narrow in numerics.casts.items()]
    if numerics.tile:
        sizes = "×".join(map(str, numerics.tile))
        parts.append(f"tiles of {sizes} padded with {'NaN' if numerics.poison else 'zero'}")
    return ", ".join(parts)


def configured(config: BackendConfig, accel: AccelConfig | None) -> EmulatedAdapter:
    """The adapter of a configuration."""
    return EmulatedAdapter(accel)
