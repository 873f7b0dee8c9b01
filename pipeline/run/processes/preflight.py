"""What a worker checks of the backend and the model before the first stage runs. Each imports torch."""

from typing import Any

from inductor_debug.pipeline.run.plan import Plan
from inductor_debug.pipeline.run.processes.memory import within_the_machine
from inductor_debug.stages.contract import StageContext


def check_backend(plan: Plan) -> None:
    """The run's backend and the reference's, whichever of the stages that compile are selected."""
    from inductor_debug.models.build import available_device
    from inductor_debug.stages.backends.registry import build_adapter, reference_adapter

    build_adapter(plan.settings).validate()
    reference = reference_adapter(plan.settings)
    if reference is not None:
        reference.validate()
    device = plan.settings.reference.device
    if device is not None and _baseline(plan.stages.get("kerneldiff")) is None:  # a baseline's reference ran there
        available_device(device, "reference.device")


def build_case(plan: Plan, context: StageContext) -> None:
    """The model and its inputs, as all stages will have them."""
    from inductor_debug.stages.eager_check import built_case

    with within_the_machine(plan.settings):
        built_case(context)


def check_eager(plan: Plan, context: StageContext) -> None:
    """That the model runs at all, on the inputs that were made for it."""
    from inductor_debug.stages.eager_check import check_eager as check

    check(context.case, plan.settings)


def needs_eager(plan: Plan) -> bool:
    """Whether the model has to run in eager mode here: a baseline's did elsewhere."""
    return not any(map(_baseline, plan.stages.values()))


def _baseline(options: Any) -> Any:
    return getattr(options, "baseline", None)
