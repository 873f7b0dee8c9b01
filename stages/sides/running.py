"""The sides of a comparison: reference, gold and test, each one step from the same state and the same seed."""

import dataclasses
import hashlib
import logging
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from inductor_debug.models.case import Case, StepResult
from inductor_debug.models.contents import same_bits
from inductor_debug.models.errors import (
    InternalError,
    UserError,
    internal_in,
    is_out_of_memory,
    message_of,
    mistake_in,
    root_cause,
)
from inductor_debug.models.nested import cast_in_place, counterpart, is_strided, map_sharing, map_tensors
from inductor_debug.models.references import deep_copy, generators_of
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.numerics import formats
from inductor_debug.stages.numerics.structure import flatten
from inductor_debug.stages.settings import ReferenceConfig
from inductor_debug.stages.sides.global_settings import settings_put_back
from inductor_debug.stages.torch_internals.cuda_graphs import in_graph_memory

log = logging.getLogger(__name__)

Leaves = dict[str, dict[str, Any]]
"""kind → path → leaf, the kinds in the order in which they are reported."""


STATE = ("parameter", "buffer", "input")
"""Kinds of leaves that are there before a step, see :meth:`models.case.Case.state`."""


@dataclass
class Side:
    """What one side gave.

    Attributes:
        leaves: its results, flattened; empty where it raised.
        changed: names of what the step wrote into (:data:`STATE`), by kind.
        drew: True where the forward took random numbers.
        generator: digest of the random generators' state after the forward; equal ones mean equally many draws.
        host: the same of Python's and NumPy's generators and the model's own alone.
        own_loss: its loss is one that the model returned, see :func:`models.loss.training_loss`.
        settings: what it changed of the whole process's settings, which were put back.
        returned: what forward returned, its tensors detached and not copied.
        redrew: gold alone: each of its random operations had the numbers of the reference's.
        unread: names of weights that no operation of the forward took, where that was looked at.
        error: type, message and traceback where it raised.
    """

    leaves: Leaves = field(default_factory=dict)
    changed: dict[str, set[str]] = field(default_factory=dict)
    drew: bool = False
    generator: bytes = b""
    host: bytes = b""
    own_loss: bool = False
    settings: list[str] = field(default_factory=list)
    returned: Any = field(default=None, repr=False)
    redrew: bool = False
    unread: list[str] = field(default_factory=list)
    error: dict[str, str] | None = None


class _Watched:
    """A callable that notes whether it took random numbers."""

    function: Callable[..., Any]
    returned: Any = None

    def __init__(self, case: Case) -> None:
        self.device = case.device
        self.own = generators_of(case.module, case.args, case.kwargs)
        self.before, self.after, self.host = b"", b"", b""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.before = generator_state(self.device, self.own)
        try:
            self.returned = self.function(*args, **kwargs)
            return self.returned
        finally:
            self.after, self.host = generator_state(self.device, self.own), _host_state(self.own)


def generator_state(device: torch.device, own: Sequence[torch.Generator] = ()) -> bytes:
    """SHA-256 of the state of Python's and NumPy's generators, torch's on the CPU and on ``device``, and ``own``."""
    states = [torch.get_rng_state()]
    if device.type not in ("cpu", "meta"):
        states.append(torch.get_device_module(device).get_rng_state(device))
    return hashlib.sha256(b"".join(state.cpu().numpy().tobytes() for state in states) + _host_state(own)).digest()


def _host_state(own: Sequence[torch.Generator]) -> bytes:
    """SHA-256 of the state of Python's and NumPy's generators, and ``own``."""
    legacy: dict[str, Any] = numpy.random.get_state(legacy=False)
    others = (random.getstate(), legacy["state"]["key"].tolist(), legacy["state"]["pos"], legacy["gauss"])
    content = b"".join(generator.get_state().cpu().numpy().tobytes() for generator in own) + repr(others).encode()
    return hashlib.sha256(content).digest()


def run_side(name: str, case: Case, function: Callable[[], Callable[..., Any]]) -> Side:
    """One step of ``case`` through what ``function()`` gives; an exception of either becomes ``Side.error``.

    Gold that raises is run a second time with ``case.substitutes`` set, for an operation may lack float64.

    Raises:
        UserError: a user's mistake is not a finding.
        InternalError: this tool's own mistake is not the side's.
        MemoryError, torch.OutOfMemoryError: memory that ran out is the stage's result, not the comparison's.
    """
    watched = _Watched(case)
    with settings_put_back() as settings:
        try:
            watched.function = function()
            result = case.run(watched)
        except Exception as error:
            if not blamed_on_side(error):
                raise
            if case.gold and not case.substitutes:
                log.info("kerneldiff: %s raised, and is run again without the operations that lack float64", name)
                case.substitutes = True
                return run_side(name, case, function)
            log.exception("kerneldiff: the %s side raised", name)
            return Side(error=describe(error))
    leaves = on_host(collect(result), case.device)
    gradients = leaves["gradient"]
    for name in in_graph_memory({name: it for name, it in gradients.items() if is_strided(it)}):
        gradients[name] = gradients[name].clone()  # autograd gave the parameter what the graph's next replay takes
    returned = map_tensors(torch.Tensor.detach, watched.returned)
    repeated = case.draws if case.gold else None
    foreign = repeated is not None and not repeated.matched  # however its generator was left
    redrew = repeated is not None and repeated.matched and bool(repeated.items)
    after = b"" if foreign else watched.after
    changed = {kind: set(leaves[kind]) for kind in STATE if kind in leaves}
    drew = watched.before != watched.after
    return Side(leaves, changed, drew, after, watched.host, result.own_loss, settings, returned, redrew)


def gave_again(first: Side, again: Side) -> bool:
    """Whether a side gave the same bits in another run."""
    for kind, leaves in again.leaves.items():
        for path, leaf in leaves.items():
            other = first.leaves.get(kind, {}).get(path)
            if isinstance(leaf, torch.Tensor) and isinstance(other, torch.Tensor) and not same_bits(other, leaf):
                return False
    return True


def blamed_on_side(error: Exception) -> bool:
    """Whether what a step raised is a finding about the side that took it.

    Raises:
        MemoryError: torch's CPU allocator raised a plain RuntimeError.
    """
    if isinstance(error, (UserError, InternalError, MemoryError, torch.OutOfMemoryError)):
        return False
    if mistake_in(error) is not None or internal_in(error) is not None:
        return False
    if is_out_of_memory(error):
        raise MemoryError(str(error)) from error
    return True


def describe(error: BaseException) -> dict[str, str]:
    """Type and message of the exception at the bottom of ``error``, and the whole traceback, for ``diagnosis.json``."""
    raised = root_cause(error)
    return {
        "type": type(raised).__name__,
        "message": message_of(raised),
        "traceback": "".join(traceback.format_exception(error)),
    }


def collect(result: StepResult) -> Leaves:
    """A step's results as leaves; of its state what it wrote into (see :func:`keep_changed`)."""
    leaves: Leaves = {"output": flatten(result.output)}
    if result.loss is not None:
        leaves["loss"] = {"loss": result.loss}
    leaves["gradient"] = dict(result.gradients)
    return leaves | {
        kind: {state_path(kind, name): tensor for name, tensor in found.items()}
        for kind, found in result.written.items()
    }


def state_path(kind: str, name: str) -> str:
    """The path of a tensor that a step wrote into: told apart from that of a parameter after optimizer steps."""
    return f"{name} (written)" if kind == "parameter" else name


COMPUTES_FLOAT64 = ("cpu", "cuda")
"""Devices on which gold is computed and results are compared. For any other it is done on the host. A device that is
being brought up may lack float64 (MPS and most NPUs do), and its own faults must not decide what is right."""


def on_host(leaves: Leaves, device: torch.device) -> Leaves:
    """The results of a step on ``device`` where they are compared; see :data:`COMPUTES_FLOAT64`."""
    if device.type in COMPUTES_FLOAT64:
        return leaves
    return {
        kind: {path: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for path, leaf in found.items()}
        for kind, found in leaves.items()
    }


def keep_changed(case: Case, reference: Side, test: Side, gold: Side) -> None:
    """Give every side the tensors that the step wrote into on the reference's or on the test side.

    So a write that one side lost is a wrong value, and a tensor that nothing writes to is not compared.

    Args:
        case: as it was before the step.
        reference, test, gold: the sides after it; their leaves are replaced.
    """
    places = _written(reference) | _written(test)
    for side in (reference, test, gold):
        side.leaves = with_state(side.leaves, places, case, exact=side is gold)


def with_state(leaves: Leaves, places: set[tuple[str, str]], case: Case, *, exact: bool = False) -> Leaves:
    """A side's leaves, of the state (:data:`STATE`) those at ``places``; none where there are no leaves.

    What a side left as it was holds there what it holds in ``case``, which is again as it was before the step.

    Args:
        leaves: the side's.
        places: (kind, path).
        case: as it was before the step.
        exact: widen what ``case`` holds to float64.
    """
    if not leaves:
        return leaves
    state = {(kind, state_path(kind, name)): tensor.detach() for (kind, name), tensor in case.state().items()}
    on_device = case.device.type in COMPUTES_FLOAT64
    kept: Leaves = {kind: {} for kind in STATE}
    for kind, path in sorted(places):
        if path in leaves.get(kind, {}):
            kept[kind][path] = leaves[kind][path]
        elif (kind, path) in state:
            before = state[kind, path] if on_device else state[kind, path].cpu()
            kept[kind][path] = formats.widen(before) if exact and formats.is_inexact(before.dtype) else before.clone()
    return leaves | kept


def state_places(leaves: Leaves) -> set[tuple[str, str]]:
    """(kind, path) of the leaves that are of the state."""
    return {(kind, path) for kind in STATE for path in leaves.get(kind, {})}


def _written(side: Side) -> set[tuple[str, str]]:
    return {(kind, path) for kind, paths in side.changed.items() for path in paths}


def reference_case(context: StageContext) -> Case:
    """What the reference runs: see :func:`case_for`."""
    return case_for(context.case, context.settings.reference)


def case_for(case: Case, settings: ReferenceConfig) -> Case:
    """The case itself, or a copy of it in ``reference.dtype`` on ``reference.device``.

    The copy's weights and inputs keep the values already rounded to the case's dtype.
    """
    dtype = case.dtype if settings.dtype is None else getattr(torch, settings.dtype)
    device = case.device if settings.device is None else torch.device(settings.device)
    if (dtype, device) == (case.dtype, case.device):
        return case
    return moved(case, dtype, device)


def moved(case: Case, dtype: torch.dtype, device: torch.device) -> Case:
    """A deep copy of ``case`` on ``device``; where ``dtype`` is another, floating weights and inputs are cast."""
    module, args, kwargs = deep_copy((case.module, case.args, case.kwargs))
    cast = dtype != case.dtype

    def become(old: torch.dtype) -> torch.dtype:
        return counterpart(old, dtype) if cast else old

    cast_in_place([*module.parameters(), *module.buffers()], become)
    module.to(device)

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(device, become(tensor.dtype)).requires_grad_(tensor.requires_grad)

    args, kwargs = map_sharing(move, (args, kwargs))
    return dataclasses.replace(
        case,
        module=module,
        args=args,
        kwargs=kwargs,
        dtype=dtype,
        device=device,
        precision="cast" if cast else case.precision,
        draws=None,
    )


def reference_function(context: StageContext, case: Case, *, loads: bool = False) -> Callable[..., Any]:
    """What the reference runs: the module itself, or the module through the adapter of ``reference.backend``.

    Args:
        loads: load what another process of the run compiled, where it can be.
    """
    from inductor_debug.stages.backends.registry import reference_adapter

    adapter = reference_adapter(context.settings)
    if adapter is None:
        return case.module
    backend = adapter.loading_backend() if loads else adapter.dynamo_backend()
    return torch.compile(case.module, backend=backend)


def round_to(leaves: Leaves, like: Leaves) -> Leaves:
    """``leaves`` with floating tensors rounded to the dtype that ``like`` has at the same place."""

    def rounded(kind: str, path: str, leaf: Any) -> Any:
        other = like.get(kind, {}).get(path)
        if isinstance(leaf, torch.Tensor) and isinstance(other, torch.Tensor):
            same_sort = leaf.is_floating_point() and other.is_floating_point()
            return leaf.to(other.dtype) if same_sort else leaf
        return leaf

    return {kind: {path: rounded(kind, path, leaf) for path, leaf in part.items()} for kind, part in leaves.items()}
