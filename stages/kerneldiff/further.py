"""What is measured beside one step of each side: the backend's own jitter, and several optimizer steps."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch

from models.case import Case
from models.errors import ConfigurationError, UserError, invalid_choice, mistake_in
from stages.contract import Settings, StageContext
from stages.kerneldiff import conditioning, sides
from stages.kerneldiff.comparison import KernelDiff, compare_tensors
from stages.kerneldiff.config import KernelDiffConfig
from stages.kerneldiff.limits import check_options
from stages.kerneldiff.record import TensorComparison
from stages.kerneldiff.steps import OPTIMIZERS, Trainee, parameters_after, train

log = logging.getLogger(__name__)

JITTER_COLUMNS = ["kind", "path", "runs", "differing", "max_abs", "rmse"]


@dataclass
class Further:
    """What was found: artifacts, and words for the stage's message."""

    artifacts: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def check(config: KernelDiffConfig, settings: Settings) -> None:
    """Raise ConfigurationError for options that can't be meant."""
    if config.optimizer not in OPTIMIZERS:
        raise invalid_choice("stages.kerneldiff.optimizer", config.optimizer, OPTIMIZERS)
    check_options(config)
    if config.steps and settings.mode != "training":
        raise ConfigurationError(
            f"stages.kerneldiff.steps: got {config.steps} in mode={settings.mode}, where nothing is trained.\n"
            "Try: mode=training"
        )
    if config.golden is not None and (config.steps or config.repeats > 1):
        raise ConfigurationError(
            "stages.kerneldiff.golden: got a stored reference with steps or repeats, which need the reference to run; "
            "valid: one of the two.\nTry: stages.kerneldiff.steps=0 stages.kerneldiff.repeats=1"
        )


def further(
    context: StageContext,
    config: KernelDiffConfig,
    cases: tuple[Case, Case],
    ran: tuple[sides.Side, sides.Side, sides.Side],
    compiled: Callable[..., Any],
    difference: KernelDiff,
) -> Further:
    """Do what the options ask for. Rows of trained parameters, and of later runs that fail, are added to
    ``difference``, their leaves to those of the sides.

    Args:
        cases: the reference's and the test side's.
        ran: reference, test and gold, one step each.
    """
    found = Further()
    if config.repeats > 1:
        context.progress(f"repeating the test side {config.repeats - 1} times")
        table = repeated(cases[1], compiled, ran, config.repeats, difference)
        found.artifacts["kerneldiff/jitter.csv"] = table
        unsteady = table[table["differing"] > 0]
        found.note += (
            f"; over {config.repeats} runs the test side differs from itself in {len(unsteady)} of {len(table)} results"
        )
        if len(unsteady):
            found.note += f", by up to {unsteady['max_abs'].max():.3g}"
    if config.steps:
        context.progress(f"{config.steps} optimizer steps on each side")
        try:
            found.artifacts["kerneldiff/drift.csv"], found_note = _stepped(context, config, cases, compiled, difference)
        except (UserError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if mistake_in(error) is not None:
                raise
            log.exception("kerneldiff: a side raised in the optimizer steps")
            told = sides.describe(error)
            difference.rows.append(_raised("parameter", "all parameters", "in the optimizer steps a side", told))
        else:
            found.note += found_note
    return found


def _stepped(
    context: StageContext, config: KernelDiffConfig, cases: tuple[Case, Case], compiled: Any, difference: KernelDiff
) -> tuple[pd.DataFrame, str]:
    drift, state = steps(context, config, cases, compiled)
    own = KernelDiff(**difference.options | {"roundoff": None})  # a parameter is stored in its own dtype
    own.compare_leaves(
        state["reference"].parameters(),
        state["test"].parameters(),
        state["gold"].parameters() if "gold" in state else {},
        kind="parameter",
    )
    difference.rows += own.rows
    if "gold" in state and context.settings.reference.backend == "eager":
        _reconsider(context, config, cases[0], state, difference)
    last = drift.iloc[-1]
    ratio = "" if last["ratio"] is None else f", {last['ratio']:.3g} times eager's own drift from float64"
    return drift, f"; after {config.steps} steps the parameters drifted by {last['error_rms']:.3g} (RMS){ratio}"


def _raised(kind: str, path: str, who: str, error: dict[str, str]) -> TensorComparison:
    first = next(iter(error["message"].splitlines()), "no message")
    return TensorComparison(kind, path, bound="value", message=f"{who} raised {error['type']}: {first}")


def _reconsider(
    context: StageContext, config: KernelDiffConfig, base: Case, state: dict[str, Trainee], difference: KernelDiff
) -> None:
    """Let perturbed references, trained as long, judge again what the floor called a defect."""
    rows = [row for row in difference.rows if row.kind == "parameter"]
    if not any(row.verdict == "defect" for row in rows):
        return
    context.progress("training perturbed references, to tell a defect from a branch within rounding")
    draws, options = state["reference"].draws, (config.steps, config.optimizer, config.learning_rate)
    conditioning.reconsider(
        rows,
        base,
        {"parameter": dict(state["gold"].parameters())},
        {"parameter": dict(state["test"].parameters())},
        draws=config.perturbations,
        run=lambda _, case: parameters_after(case, *options, draws),
    )


def repeated(
    case: Case,
    compiled: Callable[..., Any],
    ran: tuple[sides.Side, sides.Side, sides.Side],
    runs: int,
    difference: KernelDiff,
) -> pd.DataFrame:
    """Run the test side again and again from one state; one row a tensor of its first run.

    Columns: ``differing`` is in how many of the later runs any bit was another one, ``max_abs`` and ``rmse`` are of the
    run that differed most. What a later run left out, or gave in another shape, counts as differing. A later run that
    raised, or a result of it that would fail in its own right, becomes a row of ``difference``: ``PATH (run 2)``.
    """
    first = ran[1]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    tensors = {
        (kind, path): leaf
        for kind, leaves in first.leaves.items()
        for path, leaf in leaves.items()
        if isinstance(leaf, torch.Tensor)
    }
    for kind, path in tensors:
        rows[kind, path] = {"kind": kind, "path": path, "runs": runs, "differing": 0, "max_abs": 0.0, "rmse": 0.0}
    for number in range(2, runs + 1):
        again = sides.run_side("test", case, lambda: compiled)
        changed: dict[str, list[str]] = {}
        if again.error:
            difference.rows.append(_raised("output", f"(run {number})", "the test side", again.error))
        for (kind, path), leaf in tensors.items():
            other, row = again.leaves.get(kind, {}).get(path), rows[kind, path]
            if not isinstance(other, torch.Tensor) or other.shape != leaf.shape:
                row["differing"] += 1
                changed.setdefault(kind, []).append(path)
                continue
            found = compare_tensors(leaf, other, atol=0.0, worst=0)
            if found.verdict == "exact":
                continue
            row["differing"] += 1
            changed.setdefault(kind, []).append(path)
            row["max_abs"], row["rmse"] = max(row["max_abs"], found.max_abs), max(row["rmse"], found.rmse)
        if not again.error:
            _judge_again(number, again, ran, changed, difference)
    return pd.DataFrame(list(rows.values()), columns=JITTER_COLUMNS)


def _judge_again(
    number: int,
    again: sides.Side,
    ran: tuple[sides.Side, sides.Side, sides.Side],
    paths: dict[str, list[str]],
    difference: KernelDiff,
) -> None:
    """Add the rows of a later run that fail, and their leaves under the rows' names.

    Args:
        paths: of the leaves that are others than the first run's, by kind.
    """
    own = KernelDiff(**difference.options)
    for kind, names in paths.items():
        sources = [side.leaves.get(kind, {}) for side in (ran[0], again, ran[2])]
        mine, theirs, exact = ({path: part[path] for path in names if path in part} for part in sources)
        for row in own.compare_leaves(mine, theirs, exact, kind=kind):
            if not row.failed:
                continue
            name = f"{row.path}{conditioning.LATER}{number})"
            for side, part in zip(ran, (mine, theirs, exact), strict=True):
                if row.path in part:
                    side.leaves.setdefault(kind, {})[name] = part[row.path]
            row.path = name
            difference.rows.append(row)


def steps(
    context: StageContext, config: KernelDiffConfig, cases: tuple[Case, Case], compiled: Callable[..., Any]
) -> tuple[pd.DataFrame, dict[str, Trainee]]:
    """Train all sides; see :func:`stages.kerneldiff.steps.train`. Gold trains where the floor decides."""
    base, case = cases
    options = (config.optimizer, config.learning_rate)
    trained = {
        "reference": Trainee.of(base, sides.reference_function(context, base), *options),
        "test": Trainee.of(case, compiled, *options),
    }
    if config.atol is None and config.rtol is None and case.dtype != torch.float64:
        golden = case.to_gold()
        trained["reference"].watched = case.draws is not None and base is case
        trained["gold"] = Trainee.of(golden, golden.module, *options)
    return train(trained, config.steps), trained
