"""Options of the kerneldiff stage."""

from dataclasses import dataclass, field

from inductor_debug.models.options import chosen, real, whole
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.numerics.limits import ComparisonLimits

OPTIMIZERS = ("sgd", "adamw")


@dataclass
class KernelDiffConfig(ComparisonLimits):
    """What a comparison of a whole case takes beyond that of two tensors.

    Attributes:
        plots: draw a summary over all tensors, and what fails.
        perturbations: references with other rounding run at most before a tensor is called a defect; 0: none.
        repeats: how often the test side runs, from one state; above 1 how its runs differ is in kerneldiff/jitter.csv.
        draws: of the inputs, the first included; the test side runs on the first once more after them. None: 16 where
            weights and inputs are small (input_draws.SMALL), else 3; 1: the first alone, once.
        draw: which draw of the inputs is compared first; 1: the model's own inputs; from 101 on special ones.
        special: further draws in which a tenth of each floating input is zeros of both signs, denormal, the largest
            numbers, infinities or NaN, and one in which the batch is empty.
        steps: in training, optimizer steps on each side after which the parameters are compared; 0: none.
        optimizer: of these steps, sgd or adamw.
        learning_rate: of these steps.
        store_baseline: store the reference under kerneldiff/baseline, for a run with ``baseline``. None: where it takes
            at most 64 MiB (baseline_store.LIMIT); true: whatever it takes, and the weights, and the noise of
            ``perturbations`` references with other rounding, which are then run; false: never.
        baseline: directory of the run whose stored reference is compared with. The reference is then not run here,
            except where no such noise is stored: with other rounding, of what exceeds the floor (see
            ``Baseline.repeated``; ``perturbations=0``: never).
        sensitivity: after a pass, plant faults in eager and tell the smallest that this comparison calls a defect, in
            kerneldiff/sensitivity.csv.
        localize: when to look for the operation at fault, see :class:`~stages.localize.config.LocalizeConfig`.
        sensitivity_sites: places in which each kind of fault is planted.
    """

    plots: bool = True
    perturbations: int = whole(12)
    repeats: int = whole(1, least=1, example=5)
    draws: int | None = whole(None, least=1, most=100, example=3)
    draw: int = whole(1, least=1, most=106, example=5)
    special: bool = False
    steps: int = whole(0, example=3)
    optimizer: str = chosen("sgd", OPTIMIZERS)
    learning_rate: float = real(0.01, above=0)
    store_baseline: bool | None = None
    baseline: str | None = None
    sensitivity: bool = False
    sensitivity_sites: int = whole(3, least=1)
    localize: LocalizeConfig = field(default_factory=LocalizeConfig)
