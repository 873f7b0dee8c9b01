"""Inspect the guards of a case: compile it, and call it again with varied inputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError, root_cause
from inductor_debug.models.random_state import seed_everything
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.formatting import in_one_line
from inductor_debug.stages.guards.comparison import compare_frames
from inductor_debug.stages.guards.config import VARIATIONS, check_options
from inductor_debug.stages.guards.records import POLICIES, REFUSED_BY_COMPILER, GuardReport, Variation
from inductor_debug.stages.guards.session import Session, cast_weights
from inductor_debug.stages.guards.variations import Planned, Rebuilder, plan
from inductor_debug.stages.torch_internals import dynamo

Backend = Callable[..., Any]


def inspect_guards(
    model: Case | torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    vary: Iterable[str] = VARIATIONS,
    dims: Mapping[str, Mapping[str, int]] | None = None,
    rebuilder: Rebuilder | None = None,
    backend: Backend | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> GuardReport:
    """What ``torch.compile`` holds a model to, and which inputs make it compile again.

    The model is compiled under each policy of ``stages.guards.records.POLICIES``, called with its own inputs, with the
    same again, and with each variation. Every variation meets the guards of the first call alone (variations of one
    kind, such as two batch sizes, follow one another), and is first tried in eager. Module, inputs, gradients and
    random generators are left as they were found. Dynamo's caches are emptied before and after: what was compiled
    before will be compiled again.

    Args:
        model: a case, or a module, which then runs under ``no_grad`` in the mode (train or eval) that it is in.
        args, kwargs: a module's inputs; may be nested. A case has its own.
        vary: of "batch", "length", "dtype" and "contiguity".
        dims: which dimension of which input is the batch or the length: ``{"batch": {"x": 0}}``, inputs named as by
            ``Case.named_inputs``. Without it these two are varied by ``rebuilder``, or not at all.
        rebuilder: makes the case's inputs in other sizes.
        backend: for ``torch.compile(backend=…)``; by default AOTAutograd's graphs are run by torch.
        progress: told of what is being done.

    Raises:
        ConfigurationError: an unknown variation, a dimension that an input does not have, or no module.
        Exception: what the model raises in eager with its own inputs, or what torch.compile raises by default.
    """
    kinds = list(dict.fromkeys(vary))
    named = {kind: dict(value) for kind, value in (dims or {}).items()}
    check_options(kinds, named, "aot_eager")
    case = _case(model, tuple(args), dict(kwargs or {}))
    with case.preserved():
        seed_everything(case.seed)
        case.step()
    planned = [Planned(Variation("repeat", 1, "the same inputs again", "the case", "accepted"), case)]
    planned += plan(case, kinds, named, rebuilder)
    for item in planned[1:]:
        _try_in_eager(item)
    report = GuardReport(variations=[item.record for item in planned])
    try:
        for policy, dynamic in POLICIES.items():
            progress(f"compiling with {policy} sizes")
            _inspect(case, planned, policy, dynamic, backend or AotEagerAdapter().dynamo_backend(), report)
    finally:
        dynamo.reset()
    dynamic_base = report.bases["dynamic"]
    if dynamic_base.outcome == REFUSED_BY_COMPILER:
        for frame in report.frames:
            frame.not_established = f"with dynamic=True the first call raised {dynamic_base.message}"
    else:
        compare_frames(report.frames, dynamic_base.frames)
    return report


def _case(model: Case | torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Case:
    if isinstance(model, Case):
        if args or kwargs:
            raise ConfigurationError(
                "inspect_guards: got a case and inputs; valid: a case, which has its own, or a module and its inputs.\n"
                "Try: inspect_guards(case)"
            )
        return model
    if not isinstance(model, torch.nn.Module):
        raise ConfigurationError(
            f"inspect_guards: got a {type(model).__name__}; valid: a case or a torch.nn.Module.\n"
            "Try: inspect_guards(module, (x,), {'mask': mask})"
        )
    floating = [tensor for tensor in model.parameters() if tensor.is_floating_point()]
    weight = next(iter([*floating, *model.buffers()]), torch.empty(()))
    return Case(type(model).__name__, model, args, kwargs, "inference", weight.dtype, weight.device)


def _try_in_eager(planned: Planned) -> None:
    """Whether the model itself takes a variation: what it refuses says nothing about the compiler."""
    case, record = planned.case, planned.record
    if case is None:
        return
    with case.preserved(), cast_weights(case, planned.cast):
        seed_everything(case.seed)
        try:
            case.step()
            case.synchronize()
        except Exception as error:  # noqa: BLE001 - the model is the user's
            record.eager, record.message = "refused", in_one_line(root_cause(error))
            return
    record.eager = "accepted"


def _inspect(
    case: Case, planned: list[Planned], policy: str, dynamic: bool | None, backend: Backend, report: GuardReport
) -> None:
    """All calls under one policy. A kind of variation gets a new cache where an earlier one compiled anything."""
    session = Session(case, backend, dynamic)
    base, again = session.first(repeated=True)
    report.bases[policy] = base
    if session.raised is not None and policy == "automatic" and again is None:
        raise session.raised
    if again is not None:
        planned[0].record.calls[policy] = again
    for _, group in groupby(planned[1:], key=lambda item: item.record.kind):
        called = [item for item in group if item.record.eager == "accepted"]
        if base.outcome == REFUSED_BY_COMPILER:
            continue
        if called and not session.unchanged:
            session = Session(case, backend, dynamic)
            session.first()
        for item in called:
            assert item.case is not None
            item.record.calls[policy] = session.call(item.case, item.cast)
