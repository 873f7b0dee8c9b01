"""Is what a backend computes right? A step of the case on each side, compared and reviewed. No stage, no directory."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.exercise import constant_weights
from inductor_debug.models.input_draws import drawn_inputs
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.execution import Execution
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import CompiledCase, compile_case
from inductor_debug.stages.backends.given import GivenBackend, maker_of, named
from inductor_debug.stages.capture.no_graph import without_graph
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.bias import BiasedFloor
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.evidence import Evidence, StorageAlone
from inductor_debug.stages.kerneldiff.extra_runs import ExtraRuns, check, extra_runs
from inductor_debug.stages.kerneldiff.input_draws import InputDraws, draws_of, further_draws
from inductor_debug.stages.kerneldiff.kept_noise import KeptNoise
from inductor_debug.stages.kerneldiff.other_rounding import OtherRounding
from inductor_debug.stages.kerneldiff.random_draws import CopiedReference, RandomDraws, RepeatedReference
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.kerneldiff.reviews import Review, reviewed
from inductor_debug.stages.kerneldiff.standard import Standard, standard_of
from inductor_debug.stages.kerneldiff.storage_floor import StorageRounding
from inductor_debug.stages.kerneldiff.tables import conclusion, describe_error, without_gold
from inductor_debug.stages.kerneldiff.tasks import measure_tasks
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.numerics.verdict import FAILING
from inductor_debug.stages.sensitivity import messages
from inductor_debug.stages.sensitivity.measure import measure
from inductor_debug.stages.sensitivity.records import Sensitivity
from inductor_debug.stages.settings import ReferenceConfig, Settings
from inductor_debug.stages.sides import eager_attention, matched_draws
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.baseline import Baseline
from inductor_debug.stages.sides.execution import with_operations

REVIEWS: tuple[Review, ...] = (
    StorageRounding(),
    OtherRounding(),
    RandomDraws(),
    RepeatedReference(),
    CopiedReference(),
    BiasedFloor(),
)
"""First what may raise a floor or excuse an error, then what may take a floor's verdict away."""

FEW = 3
"""Names that a message lists."""


def diff(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: str | AcceleratorAdapter | GivenBackend = "inductor",
    inductor: Mapping[str, Any] | None = None,
    mode: str = "inference",
    dtype: torch.dtype | None = None,
    reference: torch.nn.Module | None = None,
    progress: Callable[[str], None] = lambda text: None,
    **options: Any,
) -> Comparison:
    """Whether a backend computes what eager computes, by the noise floor that float64 gives.

    Args:
        module: the model, in ``train()`` or ``eval()``. It, its inputs and the random generators are left as found.
        args, kwargs: its inputs.
        backend: a name that ``backend=`` of a run or of ``torch.compile`` takes, a callable for ``torch.compile``, or
            an adapter.
        inductor: options of TorchInductor, for ``backend="inductor"``.
        mode: ``inference``, or ``training`` to compare the loss, gradients and what the step wrote as well.
        dtype: compare a copy of the model whose floating weights and inputs are cast to it; default: as they are.
        reference: a module that is right, with the parameters' names and values of ``module``; default: the module
            itself in eager.
        progress: told of each run.
        options: of the stage ``kerneldiff``: ``factor``, ``atol``, ``rtol``, ``worst``, ``perturbations``,
            ``repeats``, ``draws``, ``draw``, ``special``, ``steps``, ``optimizer``, ``learning_rate``, ``sensitivity``,
            ``sensitivity_sites``.

    Returns:
        The comparison: ``verdict``, ``message``, ``rows``, ``reviews``; ``str()`` of it is a table.

    Raises:
        ConfigurationError: no such backend, or an option that it, or the comparison, does not take.
        TypeError: no such option.
    """
    config = KernelDiffConfig(**options | {"plots": False, "store_baseline": False})
    case = _cast(Case.of(module, args, kwargs or {}, mode), dtype)
    right = None if reference is None else _cast(Case.of(reference, args, kwargs or {}, mode), dtype)
    settings = Settings(ModelConfig(case.name), backend=named(backend, inductor or {}), mode=mode)
    check(config, settings)
    context = StageContext(settings, MemoryArtifacts(), {"case": case}, progress)
    make = maker_of(settings, backend)
    standard = standard_of(context, config, right=right)
    return compared(context, config, standard, lambda: compile_case(case, make()), last=True)


def _cast(case: Case, dtype: torch.dtype | None) -> Case:
    return case if dtype in (None, case.dtype) else sides.moved(case, dtype, case.device)


def compared(
    context: StageContext,
    config: KernelDiffConfig,
    standard: Standard,
    compiled: Callable[[], CompiledCase],
    *,
    last: bool = False,
) -> Comparison:
    """Run one test side and judge it; the standard is left as it was, so that many can be judged by it.

    Gold that an earlier call gave up is run again.

    The inputs are those of the draw that the options name, as they were when the standard was made.

    Args:
        context: of the stage.
        config: the stage's options.
        standard: the reference and gold, from :func:`~stages.kerneldiff.standard.standard_of`.
        compiled: gives the test side.
        last: no other test side is judged by this gold, nor is it stored: it is given up once nothing failed.
    """
    if standard.foreign:
        return Comparison("not_established", f"not_established: {standard.foreign}")
    if standard.reference.error:
        return _raised("reference", standard.reference)
    context.progress("test: running the compiled model")
    made: list[CompiledCase] = []

    def function() -> CompiledCase:
        made.append(compiled())
        return made[0]

    with drawn_inputs(standard.case, config.draw - 1, *standard.others):
        with contextlib.ExitStack() as stack:
            test = sides.run_side("test", standard.case, lambda: _watched(function(), stack))
        if test.error:
            return _raised("test", test)
        standard.bring_gold_back()
        execution = made[0].watch.execution()
        comparison = _Comparing(context, config, standard, made[0], test, last=last).comparison()
        return _with_execution(comparison, with_operations(execution, standard.case, made[0]))


def _watched(compiled: CompiledCase, stack: contextlib.ExitStack) -> CompiledCase:
    """The same; until ``stack`` closes it is seen who executes it."""
    stack.enter_context(compiled.watch.step())
    return compiled


def _with_execution(comparison: Comparison, execution: Execution) -> Comparison:
    """The same; what passes is not exercised where none of the backend's own code ran."""
    verdict, message, told = comparison.verdict, comparison.message, execution.told
    elsewhere = execution.elsewhere
    if elsewhere and verdict not in (*FAILING, "not_exercised"):
        verdict, message = "not_exercised", f"not_exercised: {elsewhere}; what ran instead is {message}"
        told = told.removeprefix(f"; {elsewhere}")
    return dataclasses.replace(comparison, verdict=verdict, message=message + told, execution=execution)


class _Comparing:
    """One test side that ran, compared with its standard."""

    def __init__(
        self,
        context: StageContext,
        config: KernelDiffConfig,
        standard: Standard,
        compiled: CompiledCase,
        test: sides.Side,
        storage: StorageAlone | None = None,
        *,
        last: bool = False,
    ) -> None:
        self.context, self.config, self.compiled, self.last = context, config, compiled, last
        self.storage = storage or StorageAlone(compiled.adapter)
        self.standard, self.first = standard, dataclasses.replace(test)
        self.case, self.origin, self.test = standard.case, standard.origin, test
        self.reference, self.gold = dataclasses.replace(standard.reference), dataclasses.replace(standard.gold)
        self.baseline = self.origin if isinstance(self.origin, Baseline) else None
        self.settings = self.baseline.reference if self.baseline else context.settings.reference

    def comparison(self) -> Comparison:
        self.context.progress("comparing")
        difference, draws = self._with_matched_draws()
        extra = ExtraRuns()
        if isinstance(self.origin, Case):
            of_gold = self.standard.of_gold(self.case, self.origin)
            cases, ran = (self.origin, self.case, of_gold), (self.reference, self.test, self.gold)
            extra = extra_runs(self.context, self.config, cases, ran, self.compiled, difference)
        evidence = Evidence(
            self.context, self.config, self.case, self.origin, self.reference, self.test, self.gold,
            self.storage, draws, self.standard.noise,
        )  # fmt: skip
        done = reviewed(REVIEWS, evidence, difference.rows)
        done.changes[:0] = extra.changes
        notes = self._notes(evidence, difference.rows, done.notes, extra.note)
        first_failed = bool(difference.failed)
        if self.last and not first_failed and not self.config.sensitivity:
            self.gold.leaves = {}  # those of the evidence too
            self.standard.give_up_gold()
        drawn = self._further_draws(difference.rows, first_failed)
        calls = [1] * min(row.run for row in difference.failed) if first_failed else drawn.failing
        difference.rows += drawn.rows
        done.changes += drawn.changes
        verdict, message = conclusion(difference, self._same_code())
        message += notes + drawn.told(first_failed) + self._untested(verdict)
        tested = self.test
        if self.config.sensitivity and verdict not in FAILING:
            found = self._sensitivity(evidence)
            message += messages.told(found)
            extra.artifacts[files.SENSITIVITY.path] = found.table
        return Comparison(
            verdict,
            message,
            difference.rows,
            done,
            gold_error=self.gold.error,
            random=done.notes.get(RepeatedReference.name) or done.notes[RandomDraws.name],
            reference=merged(self.reference.leaves, drawn.reference),
            test=merged(tested.leaves, drawn.test),
            tasks=measure_tasks(
                self.context.settings.model.name, self.reference.leaves["output"], tested.leaves["output"]
            ),
            tables=extra.artifacts,
            adapter=self.compiled.adapter,
            draw=1 if first_failed else min(drawn.wrong, default=1),
            calls=calls,
        )

    def _further_draws(self, rows: Sequence[TensorComparison], failed: bool) -> InputDraws:
        """The same on other inputs; nothing for a stored reference, which has the one input."""
        _, *numbers = draws_of(self.standard.case, self.config, failed=failed)
        if not numbers or self.baseline is not None:
            return InputDraws()
        alone = dataclasses.replace(self.config, draws=1, draw=1, special=False, repeats=1, steps=0, sensitivity=False)

        def judge(standard: Standard, test: sides.Side) -> Comparison:
            return _Comparing(self.context, alone, standard, self.compiled, test, self.storage).comparison()

        return further_draws(self.context, numbers, self.standard, self.compiled, self.first, rows, judge)

    def _sensitivity(self, evidence: Evidence) -> Sensitivity:
        """What the comparison says of faults planted in eager; they are judged as the test side was."""
        if evidence.noise is None and self.config.perturbations and self.gold.leaves:
            base, _ = evidence.perturbable
            if base is not None:
                ran = self.reference.leaves, self.gold.leaves
                evidence.noise = KeptNoise.measured(base, *ran, self.config, self.context.progress)
        evidence.context = dataclasses.replace(self.context, progress=lambda text: None)  # places are told

        def judge(side: sides.Side) -> list[TensorComparison]:
            self.test = evidence.test = dataclasses.replace(side)
            rows = self._compare().rows
            reviewed(REVIEWS, evidence, rows)
            return rows

        return measure(self.case, judge, self.config.sensitivity_sites, self.context.progress)

    def _with_matched_draws(self) -> tuple[KernelDiff, matched_draws.Draws]:
        """The rows; where something fails and random numbers were drawn, of a step with the reference's numbers."""
        before = dataclasses.replace(self.reference), dataclasses.replace(self.gold)
        difference = self._compare()
        differ = self.reference.drew and self.test.generator != self.reference.generator
        draws = matched_draws.Draws(self.case, self.test, differ=differ)
        if not (difference.failed and self.reference.drew and self.origin is self.case):
            return difference, draws
        if self.settings.uncompiled:
            self.context.progress("looking at each random number that the test side draws")
            draws = matched_draws.look(self.case, self.compiled, self.reference, self.test)
            if draws.test is not self.test:
                (self.reference, self.gold), self.case, self.test = before, draws.case, draws.test
                difference = self._compare()
        return difference, draws

    def _compare(self) -> KernelDiff:
        """The rows of what the sides gave; each side gets leaves for the state that another one wrote into."""
        reference, test, gold = self.reference, self.test, self.gold
        names = ("atol", "rtol", "factor", "worst")
        options = {name: getattr(self.config, name) for name in names}
        difference = KernelDiff(**options, roundoff=self.case.unit_roundoff)
        sides.keep_changed(self.case, reference, test, gold)
        if self.settings.dtype or self.settings.device:
            reference.leaves = sides.round_to(reference.leaves, test.leaves)
        for kind in ("output", "loss", "gradient", *sides.STATE):
            leaves = (side.leaves.get(kind, {}) for side in (reference, test, gold))
            noise = None if kind != "loss" or test.own_loss else projected_noise(difference.rows)
            difference.compare_leaves(*leaves, kind=kind, noise=noise)
        return difference

    def _notes(self, evidence: Evidence, rows: list[TensorComparison], notes: Mapping[str, str], extra: str) -> str:
        """What the message of a run adds to its verdict."""
        baseline, told = self.baseline, ""
        if baseline:
            note = notes.get(OtherRounding.name, "")
            if evidence.floor_decides and not self.gold.leaves and self.case.dtype != torch.float64:
                note = "no gold is stored there, so the tolerances of the dtype decide"
            told += f"; the reference is that of {baseline.origin}{note and f'; {note}'}"
        told += without_gold(self.gold.error) + extra
        if StorageRounding.name in notes:
            told += f"; {notes[StorageRounding.name]}"
        if evidence.eager is not None:
            told += eager_attention.explain(evidence.eager, self.test.leaves, rows)
        if self.test.settings:
            told += f"; the test side changed {', '.join(self.test.settings)}; put back"
        return told + (baseline.foreign_draws(self.context.settings, rows) if baseline else "")

    def _untested(self, verdict: str) -> str:
        """What a pass says nothing of: weights that nothing reads, and code that depends on constant ones alone."""
        if verdict in FAILING or verdict == "not_exercised":
            return ""
        constant, count = constant_weights(self.case.module)
        told = ""
        if self.gold.unread:
            told += f"; {len(self.gold.unread)} of {count} weights are read by no operation ({_few(self.gold.unread)})"
        if constant:
            told += f"; {len(constant)} of {count} weights hold one value throughout ({_few(constant)}): what depends "
            told += "on those alone is not tested"
        return told

    def _same_code(self) -> str:
        """Why both sides provably ran the same code; empty where they did not, or where that is unknown."""
        if self.baseline is not None and not self.baseline.same_place(self.case):
            return ""
        compiled, reference = self.compiled, self.settings
        adapter = compiled.adapter
        if adapter.as_traced and adapter.level == "dynamo" and reference.uncompiled and _here(reference):
            return "reference and test are both eager"
        if compiled.compiled_nothing:
            told = "" if compiled.given else without_graph(self.context)
            return f"{compiled.backend} compiled no graph, so all of the model ran in eager{told and f'. {told}'}"
        return ""


def projected_noise(outputs: Sequence[TensorComparison]) -> float | None:
    """What the outputs' noise makes of a loss that is their product with random tensors (:mod:`models.loss`).

    The loss itself is one number, and its one draw of that noise may be near zero. None where a floor is not known.
    """
    floating = [row for row in outputs if row.elements and getattr(torch, row.dtype, torch.int64).is_floating_point]
    known = [row.floor_rms for row in floating if row.floor_rms is not None]
    return math.sqrt(sum(floor**2 for floor in known)) if len(known) == len(floating) else None


def merged(leaves: sides.Leaves, others: sides.Leaves) -> sides.Leaves:
    """Leaves of both, by kind."""
    return {kind: leaves.get(kind, {}) | others.get(kind, {}) for kind in {**leaves, **others}}


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:FEW]) + ", …" * (len(names) > FEW)


def _here(reference: ReferenceConfig) -> bool:
    return reference.device is None and reference.dtype is None


def _raised(name: str, side: sides.Side) -> Comparison:
    assert side.error is not None
    message = f"not_established: the {name} side raised {describe_error(side.error)}"
    return Comparison("not_established", message, error={"side": name} | side.error)
