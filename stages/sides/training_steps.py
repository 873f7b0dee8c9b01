"""Several optimizer steps on each side, from one state: the parameters at the end, and how they drift apart.

All sides step in turn, so that after each step the parameters of all are there to be compared and only one copy of
each side's state is kept. The reference and the test side may share a module and inputs, which a step changes in many
ways: parameters and buffers, inputs written in place, counters, plain tensors, generators. So each side keeps all that
its step left (:class:`models.snapshot.Snapshot`), and has it put in before its next step; the first step of all starts
from the same.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.contents import same_bits
from inductor_debug.models.draws import Draws, recorded_draws
from inductor_debug.models.random_state import seed_everything
from inductor_debug.models.snapshot import Snapshot
from inductor_debug.stages.artifacts.tables import DriftRow
from inductor_debug.stages.sides.running import Side

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


class SideRaised(Exception):
    """A step of one side raised, which is its cause.

    Attributes:
        side: whose step it was; "a" where that is not known.
    """

    side = "a"


@dataclass
class Trainee:
    """One side: its case, what it runs, its optimizer and its state after the steps so far.

    Attributes:
        state: everything that a step may change, as this side's last step left it.
        frozen: the parameters that require no gradient, as they were before the first step.
        values: the parameters after the last step, by name; of the frozen ones those that the steps wrote.
        watched: note the random numbers of each step in ``draws``, for gold.
        draws: those of each step so far; of gold: those that it repeats.
    """

    case: Case
    function: Callable[..., Any]
    optimizer: torch.optim.Optimizer
    state: Snapshot
    frozen: dict[str, torch.Tensor]
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    loss: float = math.nan
    watched: bool = False
    draws: list[Draws] = field(default_factory=list)

    @classmethod
    def of(cls, case: Case, function: Callable[..., Any], optimizer: str, learning_rate: float) -> "Trainee":
        """The side before its first step.

        Args:
            case: its case, at the state to start from.
            function: what it runs, with the module's signature.
            optimizer: sgd or adamw.
            learning_rate: of the optimizer.
        """
        parameters = [parameter for parameter in case.module.parameters() if parameter.requires_grad]
        frozen = {
            name: parameter.detach().clone()
            for name, parameter in case.module.named_parameters()
            if not parameter.requires_grad
        }
        return cls(case, function, OPTIMIZERS[optimizer](parameters, lr=learning_rate), _state_of(case), frozen)

    def step(self, index: int) -> None:
        """Put this side's state in; one forward, backward and optimizer step; keep the state that it left.

        Raises:
            SideRaised: forward, backward or the optimizer raised; what keeps the state is this tool's own.
        """
        self.state.restore()
        seed_everything(self.case.seed + index)
        try:
            if self.watched:
                self.draws.append(recorded_draws(self._forward_backward))
            else:
                case = replace(self.case, draws=self.draws[index]) if self.draws else self.case
                self._forward_backward(case)
            self.optimizer.step()
        except Exception as error:
            raise SideRaised from error
        self.case.drop_gradients()
        self.state = _state_of(self.case)
        self.values = {
            name: parameter.detach().clone()
            for name, parameter in self.case.module.named_parameters()
            if name not in self.frozen or not same_bits(self.frozen[name], parameter)
        }

    def _forward_backward(self, case: Case | None = None) -> None:
        _, loss = (case or self.case).step(self.function)
        self.loss = math.nan if loss is None else loss.item()


def parameters(sides: Mapping[str, Trainee]) -> dict[str, dict[str, torch.Tensor]]:
    """Each side's parameters after its steps, by the side's name; of the frozen ones those that any side wrote."""
    names = dict.fromkeys(name for side in sides.values() for name in side.values)
    return {
        key: {name: held[name] for name in names if name in held}
        for key, side in sides.items()
        for held in [side.frozen | side.values]
    }


def train(sides: dict[str, Trainee], steps: int) -> list[DriftRow]:
    """Step all sides in turn; their state is then that after ``steps`` steps. Modules are left as found.

    Args:
        sides: "reference", "test" and, last, for a noise floor, "gold"; every case in ``mode="training"``.

    Returns:
        One row a step.
    """
    rows = []
    with ExitStack() as stack:
        for case in {id(side.case.module): side.case for side in sides.values()}.values():
            stack.enter_context(case.preserved())
        for index in range(steps):
            for name, side in sides.items():
                if name == "gold" or side.case.match:
                    side.draws = sides["reference"].draws
                try:
                    side.step(index)
                except SideRaised as error:
                    error.side = name
                    raise
            rows.append(_drift(index + 1, sides))
    return rows


def parameters_after(case: Case, steps: int, optimizer: str, learning_rate: float, draws: list[Draws]) -> Side:
    """The parameters of a case after eager steps from where it stands; the case is left as found.

    Args:
        case: the case.
        steps: how many.
        optimizer, learning_rate: as for :meth:`Trainee.of`.
        draws: the random numbers of each step, for a gold case; may be empty.
    """
    with case.preserved():
        trainee = Trainee.of(case, case.module, optimizer, learning_rate)
        trainee.draws = draws if case.gold else []
        for index in range(steps):
            trainee.step(index)
    return Side({"parameter": trainee.values})


def _drift(step: int, sides: dict[str, Trainee]) -> DriftRow:
    found = parameters(sides)
    reference, test, gold = found["reference"], found["test"], found.get("gold")
    count, floor, error = 0, 0.0, 0.0
    worst: tuple[float, str | None] = (0.0, None)
    for name, mine in reference.items():
        center = mine if gold is None else gold.get(name)
        if center is None or name not in test or {center.shape, test[name].shape} != {mine.shape}:
            continue  # a parameter that a side made itself, or made another: the comparison of leaves tells
        noise, wrong = (_squares(side, center) for side in (mine, test[name]))
        count, floor, error = count + mine.numel(), floor + noise, error + wrong
        ratio = math.sqrt(wrong / noise) if noise else 0.0
        worst = max(worst, (ratio, name), key=lambda item: item[0])
    return DriftRow(
        step=step,
        loss_reference=sides["reference"].loss,
        loss_test=sides["test"].loss,
        loss_gold=sides["gold"].loss if "gold" in sides else None,
        floor_rms=math.sqrt(floor / count) if gold is not None and count else None,
        error_rms=math.sqrt(error / count) if count else None,
        ratio=math.sqrt(error / floor) if floor else None,
        worst_parameter=worst[1],
        worst_ratio=worst[0] if worst[1] else None,
    )


def _squares(left: torch.Tensor, right: torch.Tensor) -> float:
    return (left.double() - right.to(left.device, torch.float64)).square().sum().item()


def _state_of(case: Case) -> Snapshot:
    return Snapshot(case.module, case.args, case.kwargs)
