"""The sides of a comparison: reference, gold and test, each one step from the same state and the same seed."""

import dataclasses
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from models.case import Case, StepResult
from models.errors import UserError
from stages.contract import StageContext
from stages.kerneldiff.structure import flatten

log = logging.getLogger(__name__)

Leaves = dict[str, dict[str, Any]]
"""kind → path → leaf, the kinds in the order in which they are reported."""


@dataclass
class Side:
    """What one side gave.

    Attributes:
        leaves: its results, flattened; empty where it raised.
        drew: True where the forward took random numbers.
        generator: state of the random generators after the forward; equal states mean equally many draws.
        error: type, message and traceback where it raised.
    """

    leaves: Leaves = field(default_factory=dict)
    drew: bool = False
    generator: bytes = b""
    error: dict[str, str] | None = None


class _Watched:
    """A callable that notes whether it took random numbers."""

    def __init__(self, function: Callable[..., Any], device: torch.device) -> None:
        self.function, self.device = function, device
        self.before, self.after = b"", b""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.before = generator_state(self.device)
        try:
            return self.function(*args, **kwargs)
        finally:
            self.after = generator_state(self.device)


def generator_state(device: torch.device) -> bytes:
    """State of torch's generators on the CPU and on ``device``."""
    states = [torch.get_rng_state()]
    if device.type not in ("cpu", "meta"):
        states.append(torch.get_device_module(device).get_rng_state(device))
    return b"".join(state.cpu().numpy().tobytes() for state in states)


def run_side(name: str, case: Case, function: Callable[[], Callable[..., Any]]) -> Side:
    """One step of ``case`` through what ``function()`` gives; an exception of either becomes ``Side.error``.

    Raises:
        UserError: a user's mistake is not a finding.
        MemoryError, torch.OutOfMemoryError: memory that ran out is the stage's result, not the comparison's.
    """
    try:
        watched = _Watched(function(), case.device)
        result = case.run(watched)
    except (UserError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if "can't allocate memory" in str(error):  # torch's CPU allocator raises a plain RuntimeError
            raise MemoryError(str(error)) from error
        log.exception("kerneldiff: the %s side raised", name)
        return Side(error=describe(error))
    return Side(collect(case, result), watched.before != watched.after, watched.after)


def describe(error: BaseException) -> dict[str, str]:
    """Type, message and traceback of an exception, for ``diagnosis.json``."""
    return {
        "type": type(error).__name__,
        "message": str(error).strip(),
        "traceback": "".join(traceback.format_exception(error)),
    }


def collect(case: Case, result: StepResult) -> Leaves:
    """A step's results as leaves. Of the buffers, those that the step changed (all of them where none is known)."""
    leaves: Leaves = {"output": flatten(result.output)}
    if result.loss is not None:
        leaves["loss"] = {"loss": result.loss}
    leaves["gradient"] = dict(result.gradients)
    before = dict(case.module.named_buffers())
    leaves["buffer"] = {
        name: buffer for name, buffer in result.buffers.items() if name not in before or _changed(before[name], buffer)
    }
    return leaves


def _changed(before: torch.Tensor, after: torch.Tensor) -> bool:
    return before.shape != after.shape or not torch.equal(before, after)


def reference_case(context: StageContext) -> Case:
    """The case itself, or a copy of it in ``reference.dtype`` on ``reference.device``: what the reference runs.

    The copy's weights and inputs keep the values already rounded to the case's dtype.
    """
    case, settings = context.case, context.settings.reference
    dtype = case.dtype if settings.dtype is None else getattr(torch, settings.dtype)
    device = case.device if settings.device is None else torch.device(settings.device)
    if (dtype, device) == (case.dtype, case.device):
        return case
    return moved(case, dtype, device)


def moved(case: Case, dtype: torch.dtype, device: torch.device) -> Case:
    """A deep copy of ``case`` with floating parameters, buffers and inputs in ``dtype``, all on ``device``."""
    import copy

    from models.nested import map_tensors

    module, args, kwargs = copy.deepcopy((case.module, case.args, case.kwargs))
    module.to(device, dtype)

    def move(tensor: torch.Tensor) -> torch.Tensor:
        kept = tensor.detach().to(device, dtype if tensor.is_floating_point() else tensor.dtype)
        return kept.requires_grad_(tensor.requires_grad)

    return dataclasses.replace(
        case,
        module=module,
        args=map_tensors(move, args),
        kwargs=map_tensors(move, kwargs),
        dtype=dtype,
        device=device,
        precision="cast",
    )


def reference_function(context: StageContext, case: Case) -> Callable[..., Any]:
    """What the reference runs: the module itself, or the module through the adapter of ``reference.backend``."""
    name = context.settings.reference.backend
    if name == "eager":
        return case.module
    from stages.lower.adapters import BUILT_IN, build_adapter
    from stages.lower.config import BackendConfig

    adapter = build_adapter(BackendConfig(name=name, adapter=name if name in BUILT_IN else "dynamo"))
    compiled: Callable[..., Any] = torch.compile(case.module, backend=adapter.dynamo_backend())
    return compiled


def round_to(leaves: Leaves, like: Leaves) -> Leaves:
    """``leaves`` with floating tensors rounded to the dtype that ``like`` has at the same place."""

    def rounded(kind: str, path: str, leaf: Any) -> Any:
        other = like.get(kind, {}).get(path)
        if isinstance(leaf, torch.Tensor) and isinstance(other, torch.Tensor):
            same_sort = leaf.is_floating_point() and other.is_floating_point()
            return leaf.to(other.dtype) if same_sort else leaf
        return leaf

    return {kind: {path: rounded(kind, path, leaf) for path, leaf in part.items()} for kind, part in leaves.items()}
