"""Several optimizer steps on each side, from one state: the parameters at the end, and how they drift apart.

All sides step in turn, so that after each step the parameters of all are there to be compared and only one copy of
each side's state is kept. The reference and the test side may share a module: before a side's step its own state is
written into the module.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import torch

from models.case import Case
from models.draws import Draws, recorded_draws
from models.random_state import seed_everything
from stages.kerneldiff.sides import Side

DRIFT_COLUMNS = [
    "step", "loss_reference", "loss_test", "loss_gold", "floor_rms", "error_rms", "ratio", "worst_parameter",
    "worst_ratio",
]  # fmt: skip

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


@dataclass
class Trainee:
    """One side: its case, what it runs, its optimizer and its state after the steps so far.

    Attributes:
        watched: note the random numbers of each step in ``draws``, for gold.
        draws: those of each step so far; of gold: those that it repeats.
    """

    case: Case
    function: Callable[..., Any]
    optimizer: torch.optim.Optimizer
    state: dict[str, torch.Tensor] = field(default_factory=dict)
    loss: float = math.nan
    watched: bool = False
    draws: list[Draws] = field(default_factory=list)

    @classmethod
    def of(cls, case: Case, function: Callable[..., Any], optimizer: str, learning_rate: float) -> "Trainee":
        parameters = [parameter for parameter in case.module.parameters() if parameter.requires_grad]
        trainee = cls(case, function, OPTIMIZERS[optimizer](parameters, lr=learning_rate))
        trainee.state = _copied(case.module)
        return trainee

    def step(self, index: int) -> None:
        """Write the state into the module, one forward, backward and optimizer step, and take the state out."""
        tensors = _tensors(self.case.module)
        with torch.no_grad():
            for name, value in self.state.items():
                tensors[name].copy_(value)
        seed_everything(self.case.seed + index)
        if self.watched:
            self.draws.append(recorded_draws(self._forward_backward))
        else:
            case = replace(self.case, draws=self.draws[index]) if self.draws else self.case
            self._forward_backward(case)
        self.optimizer.step()
        self.case.drop_gradients()
        self.state = _copied(self.case.module)

    def _forward_backward(self, case: Case | None = None) -> None:
        _, loss = (case or self.case).step(self.function)
        self.loss = math.nan if loss is None else loss.item()

    def parameters(self) -> dict[str, torch.Tensor]:
        names = {name for name, parameter in self.case.module.named_parameters() if parameter.requires_grad}
        return {name: value for name, value in self.state.items() if name in names}


def train(sides: dict[str, Trainee], steps: int) -> pd.DataFrame:
    """Step all sides in turn; their ``state`` is then that after ``steps`` steps. Modules are left as found.

    Args:
        sides: "reference", "test" and, last, for a noise floor, "gold"; every case in ``mode="training"``.

    Returns:
        One row a step (:data:`DRIFT_COLUMNS`): losses; RMS over all parameters together of reference less gold
        (``floor_rms``) and of test less gold (``error_rms``; less reference where there is no gold), their ratio, and
        the parameter of the largest ratio.
    """
    rows = []
    with ExitStack() as stack:
        for case in {id(side.case.module): side.case for side in sides.values()}.values():
            stack.enter_context(case.preserved())
        for index in range(steps):
            for name, side in sides.items():
                if name == "gold":
                    side.draws = sides["reference"].draws
                side.step(index)
            rows.append({"step": index + 1} | _losses(sides) | _drift(sides))
    return pd.DataFrame(rows, columns=DRIFT_COLUMNS)


def parameters_after(case: Case, steps: int, optimizer: str, learning_rate: float, draws: list[Draws]) -> Side:
    """The parameters of a case after eager steps from where it stands; the case is left as found.

    Args:
        draws: the random numbers of each step, for a gold case; may be empty.
    """
    with case.preserved():
        trainee = Trainee.of(case, case.module, optimizer, learning_rate)
        trainee.draws = draws if case.gold else []
        for index in range(steps):
            trainee.step(index)
    return Side({"parameter": dict(trainee.parameters())})


def _losses(sides: dict[str, Trainee]) -> dict[str, float | None]:
    return {f"loss_{name}": sides[name].loss if name in sides else None for name in ("reference", "test", "gold")}


def _drift(sides: dict[str, Trainee]) -> dict[str, Any]:
    gold = sides["gold"].parameters() if "gold" in sides else None
    reference, test = sides["reference"].parameters(), sides["test"].parameters()
    count, floor, error = 0, 0.0, 0.0
    worst: tuple[float, str | None] = (0.0, None)
    for name, mine in reference.items():
        center = mine if gold is None else gold[name]
        noise, wrong = (_squares(side, center) for side in (mine, test[name]))
        count, floor, error = count + mine.numel(), floor + noise, error + wrong
        ratio = math.sqrt(wrong / noise) if noise else 0.0
        worst = max(worst, (ratio, name), key=lambda item: item[0])
    return {
        "floor_rms": math.sqrt(floor / count) if gold is not None and count else None,
        "error_rms": math.sqrt(error / count) if count else None,
        "ratio": math.sqrt(error / floor) if floor else None,
        "worst_parameter": worst[1],
        "worst_ratio": worst[0] if worst[1] else None,
    }


def _squares(left: torch.Tensor, right: torch.Tensor) -> float:
    return (left.double() - right.to(left.device, torch.float64)).square().sum().item()


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _copied(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in _tensors(module).items()}
