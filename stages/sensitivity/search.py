"""The smallest error that is a defect: planted, judged, and planted again just below, where it must pass.

Effects are nearly linear in small errors. So what one run shows of a tensor predicts where it becomes a defect. What
is reported was planted all the same: an error that was a defect, and the largest below it that was none.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

LARGEST = 2.0
"""The largest error that is planted: three times the right value."""

FINE, COARSE = 1.2, 2.0
"""What a defect may be over what passed: of the run's verdict, and of each tensor."""

MOST_TRIALS = 40
"""Faults planted at one place at most; tensors that need more are not confirmed."""

SEEN = 1.5
"""An error over floor so many times that of no fault is the fault's."""

Key = tuple[str, str]
"""Kind and path of a compared tensor."""


@dataclass(frozen=True)
class Shown:
    """What one planted error did to one tensor.

    Attributes:
        defect: it is one.
        ratio: error over floor; None where no floor decided.
        factor: the limit on it.
        same: its bits are the reference's.
    """

    defect: bool
    ratio: float | None = None
    factor: float | None = None
    same: bool = False

    @property
    def excess(self) -> float | None:
        """Error over the limit."""
        known = self.ratio is not None and self.factor is not None and math.isfinite(self.ratio)
        return self.ratio / self.factor if known else None  # type: ignore[operator]


Trial = Mapping[Key, Shown]


@dataclass(frozen=True)
class Threshold:
    """Where a tensor becomes a defect.

    Attributes:
        error: the smallest planted error with which it was one; None where none was.
        passed: the largest planted error below that, with which it was none.
        ratio: error over floor at ``error``, or at the largest planted; None where no floor decided.
        same: no error changed a bit of it.
    """

    error: float | None
    passed: float
    ratio: float | None = None
    same: bool = False

    @property
    def confirmed(self) -> bool:
        """Both ends were planted, close to each other."""
        return self.error is None or _close(self.passed, self.error, COARSE)


class Search:
    """Planted errors at one place and what they showed.

    Args:
        plant: judges a step with an error.
        clean: what a step without an error shows.
        least: unit roundoff, below which no error is planted.
    """

    def __init__(self, plant: Callable[[float], Trial], clean: Trial, least: float) -> None:
        self.plant, self.clean, self.least = plant, clean, max(least, 1e-16)
        self.trials: dict[float, Trial] = {}

    def run(self) -> None:
        """Plant until the verdict's threshold and each tensor's are known."""
        for error in (math.sqrt(self.least * LARGEST), LARGEST):
            self._try(error)
        self._narrow(None)
        for key in dict.fromkeys(key for trial in self.trials.values() for key in trial):
            self._narrow(key)

    def threshold(self, key: Key | None) -> Threshold:
        """Of one tensor; None: of the run's verdict, which any tensor fails."""
        wrong = [error for error, trial in self.trials.items() if _defect(trial, key)]
        error = min(wrong, default=None)
        passed = [other for other in self.trials if error is None or other < error]
        last = LARGEST if error is None else error
        shown = [item for other, item in self.trials.get(last, {}).items() if key in (None, other)]
        ratio = max((item.ratio for item in shown if item.ratio is not None), default=None)
        same = key is not None and all(key in trial and trial[key].same for trial in self.trials.values())
        return Threshold(error, max(passed, default=0.0), ratio, same)

    def _try(self, error: float) -> None:
        self.trials[error] = self.plant(error)

    def _narrow(self, key: Key | None) -> None:
        """Plant between what passed and what was a defect until the two are close."""
        close = FINE if key is None else COARSE
        while len(self.trials) < MOST_TRIALS:
            found = self.threshold(key)
            if found.error is None or found.error <= self.least or _close(found.passed, found.error, close):
                return
            self._try(self._next(key, found.passed, found.error))

    def _next(self, key: Key | None, low: float, high: float) -> float:
        """An error between the two, beside the predicted threshold; for a tensor one of a grid, which others share."""
        guess = self._predicted(key)
        if guess is not None:
            beside = (guess * 1.08, guess / 1.08) if key is None else (_on_grid(guess, 1), _on_grid(guess, 0))
            for error in beside:
                if max(low, self.least) < error < high:
                    return error
        middle = math.sqrt(max(low, self.least) * high)
        coarse = _on_grid(middle, 0)
        return coarse if key is not None and max(low, self.least) < coarse < high else middle

    def _predicted(self, key: Key | None) -> float | None:
        """Where errors would reach the limit if they were linear: noise and fault add up as squares."""
        if key is None:
            keys = {key for trial in self.trials.values() for key in trial}
            return min((guess for guess in map(self._predicted, keys) if guess is not None), default=None)
        clean = self.clean.get(key, Shown(False)).excess or 0.0
        seen: list[tuple[float, float]] = []
        for error, trial in self.trials.items():
            excess = trial[key].excess if key in trial else None
            if excess is not None and excess > SEEN * clean and excess > 0:
                guess = error * math.sqrt(max(1 - clean**2, 0.01) / (excess**2 - clean**2))
                seen.append((abs(math.log(excess)), guess))
        return min(seen)[1] if seen else None


def _defect(trial: Trial, key: Key | None) -> bool:
    if key is None:
        return any(shown.defect for shown in trial.values())
    return key in trial and trial[key].defect


def _close(low: float, high: float, ratio: float) -> bool:
    return low > 0 and high <= ratio * low * (1 + 1e-9)


def _on_grid(error: float, up: int) -> float:
    """The next smaller, or the next larger, of the largest error's halves."""
    return LARGEST * 2.0 ** (math.floor(math.log2(error / LARGEST)) + up)
