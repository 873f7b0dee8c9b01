"""The emulated backend: AOT graphs with a profile's numerics, on the host."""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor, fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig
from inductor_debug.stages.accelerators.number_formats import parse_format
from inductor_debug.stages.artifacts.files import EMULATION, EMULATION_FACTS
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.graph_records import Halves, graph_records
from inductor_debug.stages.contract import StageContext, StageResult
from inductor_debug.stages.emulation.findings import Findings
from inductor_debug.stages.emulation.graph import emulated_graph
from inductor_debug.stages.emulation.weights import WeightCache
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.settings import BackendConfig

if TYPE_CHECKING:
    from inductor_debug.stages.accelerators.profile import Profile

log = logging.getLogger(__name__)


class EmulatedAdapter(AcceleratorAdapter):
    """Executes AOTAutograd's forward and backward with the numerics of a profile.

    Attention is traced as the matmuls and the softmax that it is made of, so that each is emulated; a graph given to
    :meth:`compile` is taken as it is.

    Args:
        accel: the profile; its ``numerics`` must say something.

    Attributes:
        findings: what the graphs did, so far.
        weights: rounded weights.
    """

    name = "emulated"
    emulates = True

    def __init__(self, accel: AccelConfig | None = None) -> None:
        self._config = AccelConfig() if accel is None else accel
        self._profile: Profile | None = None
        self.findings = Findings()
        self.weights = WeightCache()
        self._fresh = itertools.count()

    def capabilities(self) -> "Profile":
        """The validated profile; ConfigurationError where it is not valid."""
        from inductor_debug.stages.accelerators.profile import validate_profile

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
    def warns(self) -> bool:
        """Whether a defect that is found is recorded alone: the profile says ``strict: false``."""
        return self._config.strict is False

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

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """The graph with the profile's numerics. ConfigurationError where it states none."""
        graph_id = f"g{next(self._fresh)}.forward"
        return self._compile(gm, graph_records({graph_id: gm})[0])

    def dynamo_backend(self) -> Callable[..., Any]:
        from inductor_debug.stages.torch_internals.backends import aot_backend

        def backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            graphs = Halves(f"g{next(self._fresh)}", gm)

            def compiler(direction: str) -> Callable[..., Any]:
                return lambda graph, inputs: self._compile(graph, graphs.record(direction, graph))

            compile_aot = aot_backend(
                forward=compiler("forward"),
                backward=compiler("backward"),
                inference=compiler("forward"),
                partitioned=graphs.keep,
                recompute=False,
            )
            with sdpa_kernel(SDPBackend.MATH):
                compiled: Callable[..., Any] = compile_aot(gm, example_inputs)
            return compiled

        return backend

    def _compile(self, gm: fx.GraphModule, record: GraphRecord) -> Callable[..., Sequence[Tensor]]:
        self.validate()
        return emulated_graph(gm, record, self.capabilities(), self.weights, self.findings)


def configured(config: BackendConfig, accel: AccelConfig | None) -> EmulatedAdapter:
    """The adapter of a configuration."""
    return EmulatedAdapter(accel)


def status(adapter: EmulatedAdapter) -> Literal["passed", "failed"]:
    """Failed where a leak or an overflow of integers was found, unless the profile says ``strict: false``."""
    return "failed" if adapter.findings.defects and not adapter.warns else "passed"


def with_findings(result: StageResult, context: StageContext, adapter: EmulatedAdapter) -> StageResult:
    """The result of a stage that compares, with the findings where no lower stage has told them."""
    if EMULATION.stored(context.artifacts):
        return result
    failed = "failed" if "failed" in (result.status, status(adapter)) else result.status
    return dataclasses.replace(
        result,
        status=failed,
        message=f"{result.message}; {in_words(adapter)}",
        artifacts=result.artifacts | artifacts(adapter),
    )


def artifacts(adapter: EmulatedAdapter) -> dict[str, Any]:
    """``lower/emulation.csv``, one row a finding, and ``lower/emulation.json``: the numerics in force and counts."""
    profile = adapter.capabilities()
    facts = {
        "profile": profile.name,
        "numerics": dataclasses.asdict(profile.numerics),
        "warns": adapter.warns,
        "findings": adapter.findings.counts(),
        "weights": {"rounded": adapter.weights.misses, "reused": adapter.weights.hits},
    }
    return {EMULATION.path: adapter.findings.table(), EMULATION_FACTS.path: facts}


def in_words(adapter: EmulatedAdapter) -> str:
    """The lower stage's message."""
    numerics = adapter.capabilities().numerics
    parts = [f"{dtype} stored as {name}" for dtype, name in numerics.storage.items()]
    parts += [f"{dtype} operands as {name}" for dtype, name in numerics.operands.items()]
    if numerics.accumulate:
        every = "" if numerics.accumulate_block is None else f" every {numerics.accumulate_block} terms"
        parts.append(f"sums rounded to {numerics.accumulate}{every}")
    parts += [f"{wide} cast to {narrow}" for wide, narrow in numerics.casts.items()]
    if numerics.tile:
        sizes = "×".join(map(str, numerics.tile))
        parts.append(f"tiles of {sizes} padded with {'NaN' if numerics.poison else 'zero'}")
    words = f"emulated {', '.join(parts) or 'host fallbacks'}; {adapter.findings.in_words()}"
    worst = adapter.findings.worst_in_words()
    return f"{words}; {worst}" if worst else words
