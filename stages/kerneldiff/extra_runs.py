"""What is measured beside one step of each side: later runs of the test side, and several optimizer steps."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.draws import Draws
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.options import check_declared
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.tables import DriftRow
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.formatting import times
from inductor_debug.stages.kerneldiff import other_rounding
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.repeats import repeated
from inductor_debug.stages.kerneldiff.reviews import Change, decide
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.records import raised
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.training_steps import SideRaised, Trainee, parameters, parameters_after, train

log = logging.getLogger(__name__)


@dataclass
class ExtraRuns:
    """What was found: artifacts, and words for the stage's message.

    Attributes:
        changes: verdicts that references with other rounding changed of parameters after optimizer steps.
    """

    artifacts: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    changes: list[Change] = field(default_factory=list)


def check(config: KernelDiffConfig, settings: Settings) -> None:
    """Raise ConfigurationError for options that can't be meant."""
    check_declared(config, "stages.kerneldiff")
    if config.steps and settings.mode != "training":
        raise ConfigurationError(
            f"stages.kerneldiff.steps: got {config.steps} in mode={settings.mode}, where nothing is trained.\n"
            "Try: mode=training"
        )
    if config.baseline is not None and (
        config.steps or config.repeats > 1 or max(config.draws or 1, config.draw) > 1 or config.special
    ):
        raise ConfigurationError(
            "stages.kerneldiff.baseline: got a stored reference with steps, repeats or draws, which need the reference "
            "to run; valid: one of the two.\nTry: stages.kerneldiff.steps=0 stages.kerneldiff.repeats=1 "
            "stages.kerneldiff.draws=1 stages.kerneldiff.draw=1 stages.kerneldiff.special=false"
        )


def extra_runs(
    context: StageContext,
    config: KernelDiffConfig,
    cases: tuple[Case, Case, Case],
    ran: tuple[sides.Side, sides.Side, sides.Side],
    compiled: Callable[..., Any],
    difference: KernelDiff,
) -> ExtraRuns:
    """Do what the options ask for. Rows of trained parameters, and of later runs that fail, are added to
    ``difference``; leaves as :func:`stages.kerneldiff.repeats.repeated` says.

    Args:
        context: of the stage.
        config: the stage's options.
        cases: the reference's, the test side's, and the one that gold is of.
        ran: reference, test and gold, one step each.
        compiled: the test side's module, compiled.
        difference: the comparison so far.
    """
    found = ExtraRuns()
    if config.repeats > 1:
        context.progress(f"repeating the test side {config.repeats - 1} times")
        repeats = repeated(cases[1], compiled, ran, config.repeats, difference)
        found.artifacts[files.JITTER.path] = files.JITTER.frame(repeats.rows.values())
        found.changes += repeats.changes
        unsteady = [row for row in repeats.rows.values() if row.differing]
        count = f"{len(unsteady)} of {len(repeats.rows)} results"
        found.note += f"; over {config.repeats} runs the test side differs from itself in {count}"
        if unsteady:
            found.note += f", by up to {max(row.max_abs for row in unsteady):.3g}"
    if config.steps:
        context.progress(f"{config.steps} optimizer steps on each side")
        try:
            drift, found_note = _stepped(
                context, config, cases, compiled, difference, found.changes, floor=bool(ran[2].leaves)
            )
        except SideRaised as error:
            cause = error.__cause__
            assert isinstance(cause, Exception)
            if not sides.blamed_on_side(cause):
                raise cause from None
            log.exception("kerneldiff: the %s side raised in the optimizer steps", error.side)
            who = f"in the optimizer steps the {error.side} side"
            difference.rows.append(raised("parameter", "all parameters", who, sides.describe(cause)))
        else:
            found.artifacts[files.DRIFT.path] = files.DRIFT.frame(drift)
            found.note += found_note
    return found


def _stepped(
    context: StageContext,
    config: KernelDiffConfig,
    cases: tuple[Case, Case, Case],
    compiled: Any,
    difference: KernelDiff,
    changes: list[Change],
    *,
    floor: bool,
) -> tuple[list[DriftRow], str]:
    """``floor``: gold trains too."""
    drift, state = steps(context, config, cases, compiled, floor=floor)
    own = KernelDiff(**difference.options | {"roundoff": None})  # a parameter is stored in its own dtype
    after = parameters(state)
    own.compare_leaves(after["reference"], after["test"], after.get("gold", {}), kind="parameter")
    difference.rows += own.rows
    if "gold" in state and context.settings.reference.uncompiled:
        _reconsider(context, config, cases[0], state["reference"].draws, after, difference, changes)
    last = drift[-1]
    ratio = "" if last.ratio is None else f", {times(last.ratio)} times eager's own drift from float64"
    return drift, f"; after {config.steps} steps the parameters drifted by {last.error_rms:.3g} (RMS){ratio}"


def _reconsider(
    context: StageContext,
    config: KernelDiffConfig,
    base: Case,
    draws: list[Draws],
    after: dict[str, dict[str, torch.Tensor]],
    difference: KernelDiff,
    changes: list[Change],
) -> None:
    """Let references that round otherwise, trained as long, judge again what the floor called a defect.

    Args:
        draws: the random numbers of each of the reference's steps.
        after: each side's parameters after the steps.
    """
    rows = [row for row in difference.rows if row.kind == "parameter"]
    if not any(row.verdict == "defect" for row in rows):
        return
    context.progress("training references that round otherwise, to tell a defect from noise or a branch")
    options = config.steps, config.optimizer, config.learning_rate
    judgements = other_rounding.judged(
        rows,
        base,
        {"parameter": after["gold"]},
        {"parameter": after["test"]},
        draws=config.perturbations,
        run=lambda _, case: parameters_after(case, *options, draws),
    )
    decide(other_rounding.OtherRounding.name, rows, judgements, changes)


def steps(
    context: StageContext,
    config: KernelDiffConfig,
    cases: tuple[Case, Case, Case],
    compiled: Callable[..., Any],
    *,
    floor: bool,
) -> tuple[list[DriftRow], dict[str, Trainee]]:
    """Train all sides; see :func:`stages.sides.training_steps.train`.

    Args:
        context: of the stage.
        config: the stage's options.
        cases: as of :func:`extra_runs`.
        compiled: the test side's module, compiled.
        floor: True trains gold too, whose distance from the reference is the noise floor.
    """
    base, case, right = cases
    options = (config.optimizer, config.learning_rate)
    trained = {
        "reference": Trainee.of(base, sides.reference_function(context, base), *options),
        "test": Trainee.of(case, compiled, *options),
    }
    if floor:
        ideal = right.to_gold()
        trained["reference"].watched = case.draws is not None and base.module is case.module
        trained["gold"] = Trainee.of(ideal, ideal.module, *options)
    return train(trained, config.steps), trained
