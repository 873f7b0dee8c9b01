"""The search for the smallest error that is a defect, on made-up effects."""

import math
from collections.abc import Callable

import pytest

from inductor_debug.stages.sensitivity.messages import percent
from inductor_debug.stages.sensitivity.search import COARSE, FINE, LARGEST, MOST_TRIALS, Search, Shown, Trial

UNIT = 2.0**-24


def linear(slopes: dict[str, float], factor: float = 4.0) -> tuple[Callable[[float], Trial], list[float]]:
    """Noise of one floor, and an error that grows by so many floors with the planted one."""
    planted: list[float] = []

    def plant(error: float) -> Trial:
        planted.append(error)
        ratios = {name: math.hypot(1.0, slope * error) for name, slope in slopes.items()}
        return {("output", name): Shown(ratio > factor, ratio, factor) for name, ratio in ratios.items()}

    return plant, planted


def searched(plant: Callable[[float], Trial]) -> Search:
    search = Search(plant, plant(0.0), UNIT)
    search.run()
    return search


@pytest.mark.parametrize("slope", [3.0, 40.0, 1e4, 1e6])
def test_a_linear_effect_takes_few_runs(slope: float) -> None:
    plant, planted = linear({"y": slope})
    found = searched(plant).threshold(None)
    exact = math.sqrt(15) / slope
    assert found.error is not None and found.confirmed
    assert found.passed <= exact <= found.error <= FINE * found.passed * 1.001
    assert len(planted) <= 9


def test_every_tensor_has_its_own_threshold_and_they_share_runs() -> None:
    slopes = {f"y{index}": 10.0 * 2 ** (index / 8) for index in range(64)}
    plant, planted = linear(slopes)
    search = searched(plant)
    for name, slope in slopes.items():
        found = search.threshold(("output", name))
        assert found.error is not None and found.confirmed
        assert found.passed <= math.sqrt(15) / slope <= found.error <= COARSE * found.passed * 1.001
    assert len(planted) < MOST_TRIALS / 2


def test_without_a_floor_the_interval_is_halved() -> None:
    def plant(error: float) -> Trial:
        return {("output", "y"): Shown(error > 1e-3)}

    found = searched(plant).threshold(None)
    assert found.error is not None and 1e-3 < found.error < 1.2e-3 and found.ratio is None


def test_a_prediction_that_a_review_overrules_does_not_end_the_search() -> None:
    """A row beyond its floor is acquitted up to an error of 0.5."""

    def plant(error: float) -> Trial:
        return {("gradient", "w"): Shown(error > 0.5, 1 + 1e5 * error, 4.0)}

    found = searched(plant).threshold(None)
    assert found.error is not None and 0.5 < found.error < 0.61 and found.confirmed


def test_what_never_shows_is_none_up_to_the_largest() -> None:
    plant, _ = linear({"y": 0.1})
    found = searched(plant).threshold(("output", "y"))
    assert found.error is None and found.passed == LARGEST and found.confirmed


def test_what_shows_at_one_roundoff_already_is_not_confirmed() -> None:
    plant, _ = linear({"y": 1e12})
    found = searched(plant).threshold(None)
    assert found.error is not None and found.error < 4 * UNIT and not found.confirmed


@pytest.mark.parametrize(
    ("error", "told"), [(2.3e-7, "2.3e-05 %"), (0.1, "10 %"), (0.995, "100 %"), (1.4, "140 %"), (2.0, "200 % and more")]
)
def test_an_error_is_told_in_percent(error: float, told: str) -> None:
    assert percent(error) == told
