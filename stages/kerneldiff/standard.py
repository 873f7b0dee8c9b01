"""What a test side is judged by: the reference and gold, run here, or those of a stored run."""

import dataclasses
from dataclasses import dataclass

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.input_draws import drawn_inputs
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.kept_noise import KeptNoise
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.baseline import Baseline, open_baseline
from inductor_debug.stages.sides.gold import gold_side


@dataclass
class Standard:
    """What test sides are judged by, however many.

    Attributes:
        case: what the test side runs.
        reference, gold: as they ran, or as a baseline holds them.
        origin: the case that gave the reference, or the baseline that holds it.
        foreign: why a baseline is no reference of this case; else empty.
        noise: of runs that round otherwise, where they are to be stored or a baseline holds them.
        ideal: the case that gold ran in float64; None where no gold was run here.
        given_up: gold was, and is made anew when it is asked for again.
    """

    case: Case
    reference: sides.Side
    gold: sides.Side
    origin: Case | Baseline
    foreign: str = ""
    noise: KeptNoise | None = None
    ideal: Case | None = None
    given_up: bool = False

    @property
    def others(self) -> list[Case]:
        """The reference's case, where its inputs are others than the test side's."""
        return [self.origin] if isinstance(self.origin, Case) and self.origin.module is not self.case.module else []

    def of_gold(self, case: Case, origin: Case) -> Case:
        """Which of a test side's case and its reference's gold is of: the reference's where another module is right."""
        return origin if self.ideal is self.origin and origin.module is not case.module else case

    def with_gold(self, case: Case, origin: Case, reference: sides.Side) -> "Standard":
        """The same of other inputs, which the cases hold now; gold is run where there is one of the first ones.

        Args:
            case: what the test side runs.
            origin: what gave the reference; ``case`` itself where that runs the same.
            reference: as it ran.
        """
        ideal = self.of_gold(case, origin)
        drew = reference.drew and origin is ideal
        gold = gold_side(ideal, wanted=bool(self.gold.leaves) or self.given_up, drew=drew)
        return Standard(case, reference, gold, origin, ideal=ideal)

    def give_up_gold(self) -> None:
        """Let go of gold's results: of a training step in float64 they take twice the weights' memory."""
        if self.gold.leaves and self.ideal is not None:
            self.gold, self.given_up = dataclasses.replace(self.gold, leaves={}), True

    def bring_gold_back(self) -> None:
        """Run gold again, if it was given up; the cases hold the inputs of the reference."""
        if self.given_up:
            assert isinstance(self.origin, Case)
            self.gold = self.with_gold(self.case, self.origin, self.reference).gold
            self.given_up = False


def standard_of(
    context: StageContext, config: KernelDiffConfig, baseline: Baseline | None = None, right: Case | None = None
) -> Standard:
    """The reference and gold, one step each, or those of the baseline. A reference that raised has no gold.

    Args:
        context: of the stage.
        config: the stage's options.
        baseline: a stored reference and gold, in place of runs; None for runs.
        right: a case whose module is right, to be the reference in place of the context's; with the same inputs.
    """
    floor_decides = config.atol is None and config.rtol is None
    if baseline is not None:
        return _stored(context, config, baseline, floor_decides)
    ideal = context.case if right is None else right
    with drawn_inputs(context.case, config.draw - 1, *([] if right is None else [right])):
        context.progress("reference: running it")
        base = sides.reference_case(context) if right is None else right
        reference = sides.run_side("reference", base, lambda: sides.reference_function(context, base))
        if reference.error:
            return Standard(context.case, reference, sides.Side(), base)
        context.progress("gold: running the reference in float64")
        gold = gold_side(ideal, wanted=floor_decides, drew=reference.drew and base is ideal)
        noise = None
        if config.store_baseline and config.draw == 1 and gold.leaves and context.settings.reference.uncompiled:
            noise = KeptNoise.measured(base, reference.leaves, gold.leaves, config, context.progress)
        return Standard(context.case, reference, gold, base, noise=noise, ideal=ideal)


def _stored(context: StageContext, config: KernelDiffConfig, baseline: Baseline, floor_decides: bool) -> Standard:
    """The standard that a baseline holds; neither the reference nor gold is run."""
    foreign = baseline.foreign_weights(context.settings, context.case)
    if foreign:
        return Standard(context.case, sides.Side(), sides.Side(), baseline, foreign)
    context.progress(f"reference and gold from {baseline.origin}: neither is run here")
    case = baseline.case_with_inputs(context.case)
    reference, gold = baseline.both_sides(case)
    if not floor_decides:
        return Standard(case, reference, sides.Side(), baseline)
    return Standard(case, reference, gold, baseline, noise=KeptNoise.stored(baseline, gold.leaves, config))


def opened_baseline(context: StageContext, config: KernelDiffConfig) -> Baseline | None:
    """The baseline that the options name; the run's case gets its weights, where it holds others.

    Raises:
        ConfigurationError: see :func:`stages.sides.baseline.open_baseline` and ``Baseline.check``.
    """
    if config.baseline is None:
        return None
    if config.store_baseline:
        raise ConfigurationError(
            "stages.kerneldiff.store_baseline: got true with stages.kerneldiff.baseline, where no reference is run; "
            "valid: one of the two.\nTry: stages.kerneldiff.store_baseline=null"
        )
    baseline = open_baseline(config.baseline)
    baseline.check(context.settings, context.case)
    context.live["case"] = baseline.case_with_weights(context.case)
    return baseline
