"""State that a case has later than in its first call."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from inductor_debug.models.case import Case
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.sides.training_steps import Trainee


@dataclass(frozen=True)
class Carried:
    """What optimizer steps by torch leave; ``str()`` says so.

    A gate that begins at zero hides what it multiplies: no fault there shows before the first step.

    Attributes:
        steps: how many.
        optimizer: sgd or adamw.
        learning_rate: of the optimizer.
    """

    steps: int
    optimizer: str = "sgd"
    learning_rate: float = 0.01

    def __str__(self) -> str:
        return f"with the state that {counted(self.steps, 'optimizer step')} leave" + "s" * (self.steps == 1)

    @contextmanager
    def put_in(self, case: Case) -> Iterator[None]:
        """While open, the case has that state; it is left as found."""
        with case.preserved():
            trainee = Trainee.of(case, case.module, self.optimizer, self.learning_rate)
            for index in range(self.steps):
                trainee.step(index)
            yield
