"""The door behind which every backend stands."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import Profile, completed, validate_profile
from inductor_debug.stages.backends.graph_records import graph_records
from inductor_debug.stages.emulation.findings import Findings
from inductor_debug.stages.emulation.graph import emulated_graph
from inductor_debug.stages.emulation.weights import WeightCache
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.violations import Violations
from inductor_debug.stages.torch_internals.backends import aot_backend


class AcceleratorAdapter(ABC):
    """A backend: what it can do, what it refuses, and how it compiles a graph.

    A subclass gives :meth:`compile`; the rest has defaults. It becomes a backend of the pipeline as
    ``backend._target_=package.module.Class``, or as ``backend=NAME`` where its package names it in the entry-point
    group ``inductor_debug.adapters``; its arguments are ``backend.options``. It becomes one of ``torch.compile``
    through :meth:`dynamo_backend`. ``docs/adapters.md`` shows a whole package.

    Attributes:
        name: shown in messages; by default the class's name.
        lowers: True where compiling leaves an intermediate representation that the lower stage can show.
        emulates: True where executing leaves findings about an accelerator's numerics (``stages.backends.emulated``).
        loads: True where :meth:`loading_backend` loads what another process compiled.
        roundoff: unit roundoff of the coarsest format that it stores numbers in, where that is not their dtype; else 0.
        decompositions: operator → function, applied by AOTAutograd before :meth:`compile` sees the graph.
    """

    name: str
    lowers: bool = False
    emulates: bool = False
    loads: bool = False
    roundoff: float = 0.0
    decompositions: Mapping[Any, Callable[..., Any]] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, "name"):
            cls.name = cls.__name__

    def capabilities(self) -> Profile:
        """The accelerator's rules; empty by default: no rule, not a default rule.

        With ``accel=none`` the constrain stage checks the captured graphs against them, ``accel.FIELD`` overrides
        applied; a profile that ``accel`` names takes their place. ``stages.constrain.load_profile`` reads a YAML file,
        ``stages.constrain.validate_profile`` takes an ``AccelConfig``.
        """
        return Profile(self.name)

    def check(self, graph: GraphRecord) -> Violations:
        """Violations of one graph. Default: those of :meth:`capabilities`.

        An override says what no profile can. The constrain stage then asks it for every graph that :meth:`compile`
        would get (AOT forward and backward; Dynamo's where those were not captured), whatever ``accel`` names. It may
        begin with ``super().check(graph)``: rows of the capabilities are told apart and counted once.
        """
        return check(graph, completed(self.capabilities()))

    @abstractmethod
    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """A callable that computes what ``gm`` computes.

        Args:
            gm: an AOT graph: aten operations, functional, flat inputs and a flat tuple of outputs. Forward and
                backward are given apart.
            example_inputs: fake or real tensors with the shapes, dtypes and strides of the inputs.

        Returns:
            called with the inputs as positional arguments; returns the outputs in the graph's order.
        """

    def emulate(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """The graph with this accelerator's numerics on the host: by default those of :meth:`capabilities`.

        For callers from Python: no stage calls it, a run emulates with ``backend=emulated``.

        Raises:
            NotImplementedError: it states no numerics, so there is nothing to emulate.
        """
        profile = self.capabilities()
        if not profile.numerics.stated:
            raise NotImplementedError(f"{self.name} states no numerics to emulate")
        config = AccelConfig(profile.name, rules=list(profile.rules), numerics=profile.numerics)
        (record,) = graph_records({"g0.forward": gm})
        return emulated_graph(gm, record, validate_profile(config), WeightCache(), Findings())

    def storage_rounding(self) -> "AcceleratorAdapter | None":
        """An adapter that rounds as this one does to store numbers, and is otherwise right; None where none is
        emulated. What it costs in precision is no defect of this one's.
        """
        return None

    def validate(self) -> None:  # noqa: B027 - nothing to validate is a fine default
        """Raise ConfigurationError for options that only torch can judge. Called before the first stage runs."""

    def validate_compiled(self) -> None:  # noqa: B027 - nothing to validate is a fine default
        """Raise ConfigurationError for options that only a compiled case can judge. Called after its first step."""

    def dynamo_backend(self) -> Callable[..., Any]:
        """A callable for ``torch.compile(backend=…)``: AOTAutograd in front of :meth:`compile`."""
        return aot_backend(
            forward=self.compile, backward=self.compile, inference=self.compile, decompositions=self.decompositions
        )

    def loading_backend(self) -> Callable[..., Any]:
        """As :meth:`dynamo_backend`, of code that another process of the run compiled, where that can be loaded.

        By default nothing can: it compiles anew.
        """
        return self.dynamo_backend()


def run_as_traced(gm: fx.GraphModule) -> Callable[..., Sequence[Tensor]]:
    """The graph itself, executed operation by operation by torch."""
    assert isinstance(gm, torch.nn.Module)
    return gm.forward
