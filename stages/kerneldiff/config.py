"""Options of the kerneldiff stage. Free of torch."""

from dataclasses import dataclass

from inductor_debug.models.options import chosen, real, whole

OPTIMIZERS = ("sgd", "adamw")


@dataclass
class KernelDiffConfig:
    """Attributes:
    factor: error over floor above which a tensor is a defect.
    atol, rtol: tolerances; when set they decide instead of the floor.
    plots: draw a summary over all tensors, and what fails.
    worst: how many worst elements are kept for a tensor.
    perturbations: perturbed references run at most before a tensor is called a defect (conditioning.py); 0: none.
    repeats: how often the test side runs, from one state; above 1 its own jitter is in kerneldiff/jitter.csv.
    steps: in training, optimizer steps on each side after which the parameters are compared; 0: none.
    optimizer: of these steps, sgd or adamw.
    learning_rate: of these steps.
    store_golden: store the reference under kerneldiff/golden, for a run with ``golden``. None: where it takes at
        most 64 MiB (golden.LIMIT); true: whatever it takes, and the weights too; false: never.
    golden: directory of the run whose stored reference is compared with; the reference is then not run here, save
        for perturbed references of what exceeds the floor (see ``Golden.repeated``; ``perturbations=0``: never).
    """

    factor: float = real(4.0, above=0)
    atol: float | None = real(None, example="1e-5")
    rtol: float | None = real(None, example="1e-5")
    plots: bool = True
    worst: int = whole(8)
    perturbations: int = whole(12)
    repeats: int = whole(1, least=1, example=5)
    steps: int = whole(0, example=3)
    optimizer: str = chosen("sgd", OPTIMIZERS)
    learning_rate: float = real(0.01, above=0)
    store_golden: bool | None = None
    golden: str | None = None
