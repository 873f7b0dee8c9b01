"""A case: a built model with its example inputs, mode, dtype and device, and one step of it."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from inductor_debug.models.contents import Contents, sole_owners
from inductor_debug.models.draws import Draws, recorded_draws, replayed
from inductor_debug.models.errors import own_code
from inductor_debug.models.float64 import substituted
from inductor_debug.models.gold import as_written, double_arithmetic
from inductor_debug.models.loss import Projections, own_loss, training_loss
from inductor_debug.models.nested import cast_in_place, counterpart, drained, kept, named_tensors
from inductor_debug.models.random_state import preserved_random_state, seed_everything
from inductor_debug.models.redraws import repeated
from inductor_debug.models.references import deep_copy, tensors_in
from inductor_debug.models.snapshot import Snapshot
from inductor_debug.models.tf32 import ROUNDOFF, tf32_allowed


@dataclass
class StepResult:
    """What one step gave, detached from the module.

    Attributes:
        output: the forward's output in its own nested structure, tensors and torch's generators cloned.
        loss: scalar in training, None in inference.
        gradients: parameter name → gradient; a parameter that got none is missing. Other tensors of the module that
            require one are there by their path, inputs as ``input.NAME``.
        written: kind → name → content after the step, of the tensors of :meth:`Case.state` that it wrote into, made or
            replaced by others. What holds the same bits as before is not there.
        seconds: wall time of the step, the device synchronised before and after.
        own_loss: the loss is one that the model returned.
    """

    output: Any
    loss: torch.Tensor | None
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    written: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    seconds: float = 0.0
    own_loss: bool = False


@dataclass(frozen=True)
class Exercised:
    """What of a case was drawn anew, see :mod:`models.exercise`.

    Attributes:
        parameters: how many.
        norms: modules whose running statistics are those of a pass.
        inputs: names of those that are ragged, or both types.
    """

    parameters: int = 0
    norms: int = 0
    inputs: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"{self.parameters} constant parameters" * bool(self.parameters),
                 f"the running statistics of {self.norms} norms" * bool(self.norms), *self.inputs]  # fmt: skip
        return ", ".join(part for part in parts if part)


@dataclass
class Case:
    """A module, its inputs and how to run them.

    Attributes:
        name: the model configuration's name.
        module: in ``train()`` or ``eval()`` as ``mode`` says.
        args, kwargs: what forward gets; may be nested.
        mode: "inference" or "training".
        dtype: of floating parameters, buffers and inputs; with ``precision="autocast"`` autocast's dtype (the
            module and inputs are then float32).
        device: where the module and inputs are.
        precision: "cast" or "autocast".
        tf32: which float32 operations may use TF32 on CUDA, one of ``models.config.TF32``.
        seed: given to every generator before each :meth:`run`.
        gold: True where this is the float64 gold standard, see :meth:`to_gold`. Its ``precision`` is that of the case
            that it was made from, but nothing is autocast.
        beside_gold: True where the modes that gold runs in are on and change nothing, see :meth:`copied`.
        draws: the random numbers of one step, which gold repeats; None: gold draws for itself. See :meth:`watch_draws`.
        match: "all" or "used" where this case, which is not gold, repeats :attr:`draws` too, whatever code it runs; see
            :mod:`models.redraws`.
        substitutes: in gold, operations that lack float64 are computed otherwise, see :mod:`models.float64`.
        cast: in words, weights that the model made in another dtype and that were cast; empty where there are none.
        exercised: what of its weights and inputs was drawn anew.
        projections: what :func:`models.loss.training_loss` draws once; copies of the case share it.
        contents: copies of what its tensors hold, which its snapshots take again; copies of the case share it.
    """

    name: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mode: str
    dtype: torch.dtype
    device: torch.device
    precision: str = "cast"
    tf32: str = "none"
    seed: int = 0
    gold: bool = False
    beside_gold: bool = False
    draws: Draws | None = None
    match: str = ""
    substitutes: bool = False
    cast: str = ""
    exercised: Exercised = Exercised()
    projections: Projections = field(default_factory=dict, repr=False)
    contents: Contents = field(default_factory=Contents, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        mode: str = "inference",
    ) -> "Case":
        """A module as it stands, with the device of its first tensor and the dtype of its first floating one.

        Args:
            module: the model.
            args, kwargs: what its forward is called with; tensors of any shape and dtype.
            mode: inference or training.
        """
        kwargs = dict(kwargs or {})
        values = [*module.parameters(), *module.buffers(), *args, *kwargs.values()]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        dtypes = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
        device = tensors[0].device if tensors else torch.device("cpu")
        dtype = dtypes[0] if dtypes else torch.float32
        return cls(type(module).__name__, module, tuple(args), kwargs, mode, dtype, device)  # fmt: skip

    @property
    def unit_roundoff(self) -> float:
        """Of the case's arithmetic: that of ``dtype`` (0 for integers), or of TF32 where float32 may use it."""
        if self.dtype == torch.float32 and self.device.type == "cuda" and self.tf32 != "none":
            return ROUNDOFF
        inexact = self.dtype.is_floating_point or self.dtype.is_complex
        return torch.finfo(self.dtype).eps / 2 if inexact else 0.0

    def named_inputs(self) -> dict[str, torch.Tensor]:
        """Every input tensor by argument name; tensors inside a container, or an object, as ``name.key``."""
        named = inputs_by_name(self.module, self.args, self.kwargs)
        return {path: tensor for name, value in named.items() for path, tensor in named_tensors(value, name)}

    def state(self) -> dict[tuple[str, str], torch.Tensor]:
        """Every tensor that a step may write into, by kind and name.

        ``parameter``; ``buffer``, which the module's other attributes count as, by their path; and ``input``.
        """
        named: dict[tuple[str, str], torch.Tensor] = {}
        named |= {("parameter", name): parameter for name, parameter in self.module.named_parameters()}
        named |= {("buffer", name): buffer for name, buffer in self.module.named_buffers()}
        known = {id(tensor) for tensor in named.values()}
        for path, tensor in tensors_in({"": self.module}).items():
            if id(tensor) not in known:
                named["buffer", path] = tensor
        return named | {("input", name): tensor for name, tensor in self.named_inputs().items()}

    def step(self, fn: Callable[..., Any] | None = None) -> tuple[Any, torch.Tensor | None]:
        """One step, exactly as it is timed; neither seeded nor undone (see :meth:`run`).

        Inference is a forward under ``no_grad``. Training drops the old gradients, then runs forward, loss and
        backward; autocast covers the forward alone.

        Args:
            fn: a callable with the module's signature, e.g. a compiled one. Default: the module itself.

        Returns:
            The output as the callable returned it, iterators in it read to their end (:func:`models.nested.drained`),
            and the loss (a scalar; None in inference).

        Raises:
            ConfigurationError: training, and no floating output depends on anything that requires a gradient.
        """
        with self.surroundings():
            return self.bare_step(fn)

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """What a step runs in: no gradients in inference, and how float32 products and draws are made.

        To be open around several :meth:`bare_step`, so that what a step costs is the model's.
        """
        with ExitStack() as stack:
            if self.gold or self.beside_gold:
                # CUDA's autocast keeps attention off its fast path; in gold, which is not autocast, the mode does
                slow = self.precision == "autocast" and self.device.type == "cuda"
                stack.enter_context(double_arithmetic(unseen=not slow))
                if self.draws is not None:
                    stack.enter_context(replayed(self.draws if self.gold else Draws()))
            elif self.match and self.draws is not None:
                stack.enter_context(repeated(self.draws, self.match))
            if self.gold and self.substitutes:
                stack.enter_context(substituted())
            if self.beside_gold:
                stack.enter_context(as_written())
            if self.device.type == "cuda":
                stack.enter_context(tf32_allowed(self.tf32))
            if self.mode == "inference":
                stack.enter_context(torch.no_grad())
            yield

    def bare_step(
        self, fn: Callable[..., Any] | None = None, between: Callable[[], None] | None = None
    ) -> tuple[Any, torch.Tensor | None]:
        """:meth:`step` within :meth:`surroundings` that the caller opened.

        Args:
            fn: as of :meth:`step`.
            between: called in training between forward with loss, and backward.
        """
        function = self.module if fn is None else fn
        if self.mode == "inference":
            with self._autocast():
                return drained(function(*self.args, **self.kwargs)), None
        self.drop_gradients()
        with self._autocast():
            output = drained(function(*self.args, **self.kwargs))
        loss = training_loss(output, self.projections)
        if between is not None:
            between()
        loss.backward()
        return output, loss

    def run(self, fn: Callable[..., Any] | None = None) -> StepResult:
        """One step from the case's seed and its present state; module, inputs and generators are left as found.

        Raises:
            InternalError: keeping the case's state or the step's results failed, which is no fault of the step's.
            Exception: whatever the step raises.
        """
        with self.preserved() as found:
            with own_code("looked for what a step may write into"):
                before = self.state()
                for tensor in before.values():  # of tensors that are no parameters too, which step() does not look for
                    if tensor.is_leaf:
                        tensor.grad = None
            seed_everything(self.seed)
            self.synchronize()
            start = time.perf_counter()
            output, loss = self.step(fn)
            self.synchronize()
            seconds = time.perf_counter() - start
            with own_code("kept the results of a step"):
                return StepResult(
                    output=kept(output),
                    loss=None if loss is None else loss.detach().clone(),
                    gradients=self._take_gradients(),
                    written=self._written(before, found),
                    seconds=seconds,
                    own_loss=loss is not None and own_loss(output) is not None,
                )

    def _written(
        self, before: dict[tuple[str, str], torch.Tensor], found: Snapshot
    ) -> dict[str, dict[str, torch.Tensor]]:
        """What changed since ``before``, the state of which ``found`` holds the content."""
        written: dict[str, dict[str, torch.Tensor]] = {}
        for (kind, name), tensor in self.state().items():
            was = before.get((kind, name))
            if was is None or found.of(was).changed_to(tensor):
                written.setdefault(kind, {})[name] = tensor.detach().clone()
        return written

    @contextmanager
    def preserved(self) -> Iterator[Snapshot]:
        """Put the module, inputs and generators back on exit, as :class:`models.snapshot.Snapshot` does.

        Inside, gradients start as they are outside. Costs one copy of the parameters. Yields what will be put back.

        Raises:
            InternalError: keeping it, or putting it back, failed.
        """
        with own_code("kept the case's state"):
            state = Snapshot(self.module, self.args, self.kwargs, list(self.state().values()), contents=self.contents)
        with preserved_random_state(self.device):
            try:
                yield state
            finally:
                with own_code("put the case's state back"):
                    state.restore()

    def to_gold(self) -> "Case":
        """A deep copy in float64: the reference's mathematics without its rounding.

        Weights and inputs keep the values already rounded to the case's dtype. While the copy runs, float32 that
        the model's code asks for by name (``x.float()``, ``dtype=torch.float32``, the default dtype of
        ``torch.zeros``) means float64 as well. Rounding to a dtype other than float32 that the code asks for
        by name stays.

        Random numbers are those of :attr:`draws`, where :meth:`watch_draws` was called before.
        """
        return replace(self._copied(torch.float64), dtype=torch.float64, gold=True)

    def copied(self) -> "Case":
        """A copy made and run as gold is, but in the case's own dtypes.

        Where it gives other numbers, gold is not to be had.
        """
        return replace(self._copied(None), beside_gold=True)

    def _copied(self, dtype: torch.dtype | None) -> "Case":
        roots = self.module, self.args, self.kwargs

        def become(old: torch.dtype) -> torch.dtype:
            return old if dtype is None else counterpart(old, dtype)

        held = tensors_in({"": roots}).values()
        mine = [tensor for tensor in held if dtype is None or become(tensor.dtype) != tensor.dtype]
        alone = sole_owners(mine)
        made = {
            id(tensor): self.contents.cast(tensor, become(tensor.dtype))
            for tensor in mine
            if id(tensor) in alone and tensor.is_leaf and (isinstance(tensor, torch.nn.Parameter) or not vars(tensor))
        }  # what Dynamo notes of a parameter no copy has
        module, args, kwargs = deep_copy(roots, made)
        tensors = list(tensors_in({"module": module, "args": args, "kwargs": kwargs}).values())
        for tensor in tensors:
            if tensor.is_leaf:
                tensor.grad = None
        ready = set(map(id, made.values()))
        cast_in_place([tensor for tensor in tensors if id(tensor) not in ready], become, anew=dtype is None)
        return replace(self, module=module, args=args, kwargs=kwargs)

    def watch_draws(self) -> None:
        """Take one step in eager, to note its random numbers for gold; the case is left as found."""
        with self.preserved():
            seed_everything(self.seed)
            self.draws = recorded_draws(self.step)

    def drop_gradients(self) -> None:
        """Set ``.grad`` of the parameters and inputs to None."""
        self.module.zero_grad(set_to_none=True)
        for tensor in self.named_inputs().values():
            if tensor.is_leaf:
                tensor.grad = None

    def synchronize(self) -> None:
        """Wait until the device has done its work."""
        if self.device.type not in ("cpu", "meta"):
            torch.get_device_module(self.device).synchronize(self.device)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision != "autocast" or self.gold:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def _take_gradients(self) -> dict[str, torch.Tensor]:
        """Gradients of this step. They are fresh tensors (:meth:`step` dropped the old ones), so not cloned."""
        if self.mode == "inference":
            return {}
        found: dict[str, torch.Tensor] = {}
        for (kind, name), tensor in self.state().items():
            if tensor.is_leaf and tensor.grad is not None:
                found[f"input.{name}" if kind == "input" else name] = tensor.grad
        return found


def inputs_by_name(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by forward's parameter names; ``*args`` beyond the named ones as ``args.0``, ``args.1``, …"""
    named: dict[str, Any] = {}
    positional = [
        parameter.name
        for parameter in inspect.signature(module.forward).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    for index, value in enumerate(args):
        named[positional[index] if index < len(positional) else f"args.{index - len(positional)}"] = value
    return named | kwargs
