"""The door behind which every backend stands: what the stages ask of one, they ask here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import Profile, completed, validate_profile
from inductor_debug.stages.backends.emulation import Emulation
from inductor_debug.stages.backends.execution import Executor
from inductor_debug.stages.backends.front import Front, Level, record_of
from inductor_debug.stages.backends.lowering import Lowering
from inductor_debug.stages.emulation.findings import Findings
from inductor_debug.stages.emulation.graph import emulated_graph
from inductor_debug.stages.emulation.weights import WeightCache
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.violations import Violations
from inductor_debug.stages.torch_internals.inductor import LoweredGraph


@dataclass(frozen=True)
class ValuePrinter:
    """A printer of intermediate values inside compiled code.

    Attributes:
        level: of AOTInductor's printer: 1 saves tensors, 2 prints values, 3 prints the names of kernels.
        kernels: those of which values are told; empty for all.
        printing: gives an adapter that compiles with it, and runs each graph through what it is given.
    """

    level: int
    kernels: Sequence[str]
    printing: "Callable[[Any], AcceleratorAdapter]"


class AcceleratorAdapter(ABC):
    """A backend: what it can do, what it refuses, and how it compiles a graph.

    A subclass gives :meth:`compile`; the rest has defaults. It becomes a backend of the pipeline as
    ``backend._target_=package.module.Class``, or as ``backend=NAME`` where its package names it in the entry-point
    group ``inductor_debug.adapters``; its arguments are ``backend.options``. It becomes one of ``torch.compile``
    through :meth:`dynamo_backend`. ``docs/how-to/add-a-backend.md`` shows a whole package.

    Attributes:
        name: shown in messages; by default the class's name.
        level: what :meth:`compile` takes: ``aot``, AOTAutograd's forward and backward graphs apart, or ``dynamo``,
            Dynamo's graph as it is.
        loads: True where :meth:`loading_backend` loads what another process compiled.
        roundoff: unit roundoff of the coarsest format that it stores numbers in, where that is not their dtype; else 0.
        decompositions: operator → function, applied by AOTAutograd before :meth:`compile` sees the graph.
        switch_key: the key of the configuration below which the names of :meth:`switches` are typed.
    """

    name: str
    level: Level = "aot"
    loads: bool = False
    roundoff: float = 0.0
    decompositions: Mapping[Any, Callable[..., Any]] | None = None
    switch_key: str = "backend.options"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, "name"):
            cls.name = cls.__name__

    # what it declares

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
        would get, whatever ``accel`` names. At the level ``dynamo`` those are Dynamo's graphs; at the level ``aot``
        forward and backward, or Dynamo's where those were not captured. It may begin with ``super().check(graph)``:
        rows of the capabilities are told apart and counted once.
        """
        return check(graph, completed(self.capabilities()))

    def own_check(self) -> Callable[[GraphRecord], Violations] | None:
        """:meth:`check` where it is not the default one, else None."""
        return None if type(self).check is AcceleratorAdapter.check else self.check

    def validate(self) -> None:  # noqa: B027 - nothing to validate is a fine default
        """Raise ConfigurationError for options that only torch can judge. Called before the first stage runs."""

    def validate_compiled(self) -> None:  # noqa: B027 - nothing to validate is a fine default
        """Raise ConfigurationError for options that only a compiled case can judge. Called after its first step."""

    # how it compiles

    @abstractmethod
    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """A callable that computes what ``gm`` computes.

        Args:
            gm: an AOT graph: aten operations, functional, flat inputs and a flat tuple of outputs. Forward and
                backward are given apart. At the level ``dynamo`` Dynamo's graph: torch's functions and methods,
                parameters among the inputs, a tuple of outputs; in training autograd records what the callable does.
                The bisect stage gives parts of AOT graphs at either level.
            example_inputs: fake or real tensors with the shapes, dtypes and strides of the inputs.

        Returns:
            called with the inputs as positional arguments; returns the outputs in the graph's order.
        """

    def record(self, gm: fx.GraphModule) -> GraphRecord:
        """The record of a graph that :meth:`compile` was given: its id, and its nodes with modules and source lines.

        To be asked before the graph is changed.
        """
        return record_of(gm)

    def dynamo_backend(self) -> Callable[..., Any]:
        """A callable for ``torch.compile(backend=…)``: :meth:`compile`, with AOTAutograd in front where it takes AOT
        graphs. An override keeps to that where :meth:`lowering` is to be asked.
        """
        return Front(
            self.compile,
            level=self.level,
            decompositions=self.decompositions,
            lowering=self.lowering if self.lowers else None,
            name=self.name,
        )

    def storing_backend(self) -> Callable[..., Any]:
        """As :meth:`dynamo_backend`; what it compiles is stored for :meth:`loading_backend`, where ``loads``."""
        return self.dynamo_backend()

    def loading_backend(self) -> Callable[..., Any]:
        """As :meth:`dynamo_backend`, of code that another process of the run compiled, where that can be loaded.

        By default nothing can: it compiles anew.
        """
        return self.dynamo_backend()

    def rewriting_backend(self, rewrite: Callable[[str, str], str]) -> Callable[..., Any] | None:
        """As :meth:`dynamo_backend`, where generated modules run: each is loaded as ``rewrite`` gives it.

        Args:
            rewrite: graph id, text of a generated module → the text that is loaded in its place.

        Returns:
            None where no generated module runs, or it can't be loaded as another.
        """
        return None

    @property
    def own_front(self) -> bool:
        """Whether what comes between Dynamo and :meth:`compile` is its own, and not this program's AOTAutograd."""
        return self.level == "dynamo" or type(self).dynamo_backend is not AcceleratorAdapter.dynamo_backend

    @property
    def as_traced(self) -> bool:
        """Whether it compiles nothing: torch executes its graphs as they were traced, operation by operation."""
        return False

    def inductor_options(self) -> Mapping[str, Any] | None:
        """Options of TorchInductor in force for what it compiles, flat; None where it does not compile by TorchInductor
        as this program runs it."""
        return None

    @property
    def executor(self) -> Executor:
        """Who is to execute its graphs: its ``own`` code, ``inductor``, or ``torch`` operation by operation.

        Where it is ``own``, the graphs are watched: a comparison of graphs that others executed is ``not_exercised``.
        By default it is ``torch`` where it is ``as_traced`` or emulates, ``inductor`` where it has
        :meth:`inductor_options`. An adapter that calls TorchInductor by design says so here.
        """
        if self.as_traced or self.emulates:
            return "torch"
        return "own" if self.inductor_options() is None else "inductor"

    def compiled_graphs(self, backend: Callable[..., Any]) -> int | None:
        """How many graphs were compiled, AOTAutograd's halves apart; None where that is not known.

        Args:
            backend: what :meth:`dynamo_backend`, or another method like it, gave.
        """
        return backend.compiled if isinstance(backend, Front) else None

    # what it lowered

    @property
    def lowers(self) -> bool:
        """Whether compiling leaves something that the lower stage can show: :meth:`lowering` is overridden."""
        return type(self).lowering is not AcceleratorAdapter.lowering

    def lowering(self, compiled: Callable[..., Any]) -> Lowering | None:
        """What one graph was lowered to: its code, its kernels, the nodes that each of them computes.

        Args:
            compiled: what :meth:`compile` gave for the graph. Asked once, before it is called.

        Returns:
            None where that can't be told.
        """
        return None

    def lowered(self, backend: Callable[..., Any]) -> Mapping[str, LoweredGraph]:
        """What each graph was lowered to, by id. ``backend`` is that of :meth:`compiled_graphs`."""
        return backend.graphs if self.lowers and isinstance(backend, Front) else {}

    def value_printer(self) -> ValuePrinter | None:
        """The printer of intermediate values that was asked for; None where none was, or it has none."""
        return None

    # what it emulates

    @property
    def emulates(self) -> bool:
        """Whether executing leaves findings about an accelerator's numerics: :meth:`emulation` is overridden."""
        return type(self).emulation is not AcceleratorAdapter.emulation

    def emulation(self) -> Emulation | None:
        """What was emulated, and what was found since the adapter was made; None where that can't be told.

        Asked after the compiled case has run, by the lower stage, or by one that compares where that is not selected.
        """
        return None

    def storage_rounding(self) -> "AcceleratorAdapter | None":
        """An adapter that rounds as this one does to store numbers, and is otherwise right; None where none is
        emulated. What it costs in precision is no defect of this one's.
        """
        return None

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
        return emulated_graph(gm, record_of(gm), validate_profile(config), WeightCache(), Findings())

    # what can be turned off in it

    def switches(self, device: str) -> Mapping[str, Any]:
        """Flags that may make a fault go away, each with the value to try: ``{"fast_math": False}``.

        The bisect stage looks among them for those that do. A name is typed below ``switch_key``.

        Args:
            device: the case's kind of device, ``cpu``, ``cuda``, ….
        """
        return {}

    def switched(self, values: Mapping[str, Any]) -> "AcceleratorAdapter":
        """The same adapter made anew, with these values of some of its :meth:`switches`."""
        raise NotImplementedError(f"{self.name} has switches and no method switched")


def run_as_traced(gm: fx.GraphModule) -> Callable[..., Sequence[Tensor]]:
    """The graph itself, executed operation by operation by torch."""
    assert isinstance(gm, torch.nn.Module)
    return gm.forward
