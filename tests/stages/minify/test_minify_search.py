"""The search for a smallest set that fails, on made-up failures."""

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest

from inductor_debug.stages.minify.search import Reduced, reduced

N = 1000
Oracle = Callable[[set[int]], bool]
COSTS: dict[str, Callable[[int], list[float]]] = {
    "uniform": lambda n: [1.0] * n,
    "rising": lambda n: [1.0 + index for index in range(n)],
    "falling": lambda n: [float(n - index) for index in range(n)],
    "wide": lambda n: [10 ** random.Random(f"{n}, {index}").uniform(-3, 3) for index in range(n)],
}


class Executed:
    """Reduces a set, and keeps what was executed for it."""

    def __init__(self, fails: Oracle, cost: Sequence[float], *, starts: Sequence[Sequence[int]] = ()) -> None:
        self.fails, self.cost = fails, cost
        self.candidates: list[tuple[int, ...]] = []
        self.answers: list[bool] = []
        self.progress: list[tuple[int, int]] = []
        self.result: Reduced = reduced(
            cost, self._failing, starts=starts, progress=lambda left, tried: self.progress.append((left, tried))
        )

    def _failing(self, kept: tuple[int, ...]) -> bool:
        self.candidates.append(kept)
        self.answers.append(self.fails(set(kept)))
        return self.answers[-1]

    @property
    def spent(self) -> float:
        """What all executions cost, in executions of the whole set."""
        return sum(self.cost[unit] for kept in self.candidates for unit in kept) / sum(self.cost)


def needs(*units: int) -> Oracle:
    return set(units).issubset


def any_of(causes: Sequence[set[int]]) -> Oracle:
    return lambda kept: any(cause <= kept for cause in causes)


def half_of_all(seed: int) -> Oracle:
    """Fails without rule, but the same each time."""
    return lambda kept: random.Random(f"{seed} {sorted(kept)}").random() < 0.5


def hidden(needed: set[int], hiding: int, unhiding: int) -> Oracle:
    """Not monotone: one unit hides the failure, unless another is there too."""
    return lambda kept: needed <= kept and (hiding not in kept or unhiding in kept)


def check(found: Executed) -> None:
    """What holds for every result, whatever the failure."""
    kept = found.result.kept
    assert found.result.minimal
    assert list(kept) == sorted(set(kept))
    assert len(kept) == len(found.cost) or found.fails(set(kept))
    assert len(kept) == 1 or not any(found.fails(set(kept) - {unit}) for unit in kept), "one unit can be left out"
    assert len(set(found.candidates)) == len(found.candidates), "a set was executed twice"
    assert all(candidate and list(candidate) == sorted(set(candidate)) for candidate in found.candidates)
    assert (found.result.tried, found.result.failed) == (len(found.answers), sum(found.answers))
    assert [tried for _, tried in found.progress] == list(range(1, found.result.tried + 1))
    assert not found.progress or found.progress[-1][0] == len(kept)


def monotone_bound(n: int) -> float:
    return 4 * n + 8 * math.log2(n) + 8


@pytest.mark.parametrize("costs", COSTS)
def test_one_unit_of_a_thousand_takes_at_most_twenty_executions(costs: str) -> None:
    cost = COSTS[costs](N)
    found = {unit: Executed(needs(unit), cost) for unit in [*range(0, N, 9), N - 1]}
    for unit, each in found.items():
        check(each)
        assert each.result.kept == (unit,)
        assert each.result.tried <= 20
        assert each.spent < 3
    assert sum(each.result.tried for each in found.values()) / len(found) < 16


@pytest.mark.parametrize("costs", ["uniform", "wide"])
def test_two_units_far_apart_take_some_three_searches(costs: str) -> None:
    draws, cost = random.Random(0), COSTS[costs](N)
    for _ in range(50):
        pair = sorted(draws.sample(range(N), 2))
        found = Executed(needs(*pair), cost)
        check(found)
        assert list(found.result.kept) == pair
        assert found.result.tried <= 3 * math.log2(N) + 3
        assert found.spent < 6, "what lies between is left out as soon as it is most of the cost"


@pytest.mark.parametrize("costs", ["uniform", "wide"])
def test_ten_adjacent_units_take_four_searches(costs: str) -> None:
    cost = COSTS[costs](N)
    for begin in range(0, N - 9, 21):
        found = Executed(needs(*range(begin, begin + 10)), cost)
        check(found)
        assert found.result.kept == tuple(range(begin, begin + 10))
        assert found.result.tried <= 4 * math.log2(N) + 4
        assert found.spent < 5


def test_a_few_units_anywhere_cost_a_logarithm_each() -> None:
    draws = random.Random(1)
    for count in (3, 4, 6):
        for _ in range(5):
            units = sorted(draws.sample(range(N), count))
            found = Executed(needs(*units), COSTS["wide"](N))
            check(found)
            assert list(found.result.kept) == units
            assert found.result.tried < 2 * count * math.log2(N)


def test_what_lies_between_is_tried_to_be_left_out_but_once() -> None:
    draws = random.Random(4)
    for _ in range(30):
        units = [draws.randrange(0, 100), draws.randrange(450, 550), draws.randrange(900, N)]
        found = Executed(needs(*units), [1.0] * N)
        assert list(found.result.kept) == units
        assert found.result.tried <= 4 * math.log2(N) + 4


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 33, 100])
def test_a_failure_that_needs_any_units_stays_below_the_bound(n: int) -> None:
    draws = random.Random(n)
    wanted = [range(n), range(0, n, 2), range(n // 2, n), [0, n - 1]]
    wanted += [draws.sample(range(n), draws.randint(1, n)) for _ in range(20)]
    for units in wanted:
        found = Executed(needs(*units), COSTS["wide"](n))
        check(found)
        assert set(found.result.kept) == set(units)
        assert found.result.tried <= monotone_bound(n)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 12, 40])
def test_no_failure_takes_more_than_the_bound(n: int) -> None:
    """Half of all sets fail, without rule; or of the single units left the last one tried can go."""
    bound = monotone_bound(n) + n * (n + 1) / 2
    for seed in range(20):
        found = Executed(half_of_all(seed), [1.0] * n)
        check(found)
        assert found.result.tried <= bound
    left, refused = n, 0

    def last_of_all(kept: tuple[int, ...]) -> bool:
        nonlocal left, refused
        refused += len(kept) == left - 1
        if len(kept) < left - 1 or refused < left:
            return False
        left, refused = left - 1, 0
        return True

    result = reduced([1.0] * n, last_of_all)
    assert result.minimal
    assert result.tried <= bound


def test_every_small_failure_that_more_units_never_hide_is_reduced() -> None:
    sets = [set(units) for count in (1, 2, 3, 4) for units in itertools.combinations(range(4), count)]
    for causes in itertools.combinations(sets, 2):
        check(Executed(any_of(causes), [3.0, 1.0, 4.0, 2.0]))


def test_a_failure_that_another_unit_hides_is_reduced() -> None:
    draws = random.Random(2)
    for _ in range(60):
        n = draws.randint(4, 60)
        culprit, second, hiding, unhiding = draws.sample(range(n), 4)
        for both in (False, True):
            needed = {culprit, second} if both else {culprit}

            found = Executed(hidden(needed, hiding, unhiding), COSTS["wide"](n))
            check(found)
            assert needed <= set(found.result.kept)
            assert found.result.tried <= monotone_bound(n)


def test_a_unit_that_can_go_only_after_a_cheaper_one_went_is_left_out() -> None:
    found = Executed(lambda kept: {1, 3} <= kept and (0 in kept or 2 not in kept), [9.0, 1.0, 1.0, 1.0])
    check(found)
    assert found.result.kept == (1, 3)


def test_it_costs_a_fraction_of_leaving_out_one_unit_after_another() -> None:
    draws = random.Random(3)
    for costs in COSTS:
        cost = COSTS[costs](200)
        for count in (1, 2, 5, 10):
            units = set(draws.sample(range(200), count))
            left, naive = set(range(200)), 0.0
            for unit in range(200):
                naive += sum(cost[each] for each in left - {unit}) / sum(cost)
                left -= {unit} - units
            assert Executed(needs(*units), cost).spent < naive / 2


def test_the_cheaper_half_and_the_expensive_group_come_first() -> None:
    found = Executed(needs(7), COSTS["falling"](8))
    assert found.candidates == [(4, 5, 6, 7), (6, 7), (7,)]
    whole = Executed(needs(*range(8)), [1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 1.0, 1.0])
    groups = [set(range(8)) - set(kept) for kept in whole.candidates]
    assert groups.index({4, 5, 6}) < groups.index({1, 2, 3})
    assert groups.index({4}) < groups.index({2})


@pytest.mark.parametrize("starts", [[[417]], [[3, 4, 5], [417]], [[], range(N), [417, 417]], [[417, 3]]], ids=str)
def test_a_localized_unit_takes_at_most_three_executions(starts: Sequence[Sequence[int]]) -> None:
    found = Executed(needs(417), COSTS["wide"](N), starts=starts)
    check(found)
    assert found.result.kept == (417,)
    assert found.result.tried <= 3


def test_a_start_that_fails_ends_the_starts_and_one_that_does_not_costs_one_execution() -> None:
    found = Executed(needs(5, 2), [1.0] * N, starts=[[5, 2], [4, 5, 2]])
    check(found)
    assert found.candidates == [(2, 5), (2,), (5,)]
    wrong = Executed(needs(5), [1.0] * N, starts=[[9, 8]])
    assert wrong.result.tried == Executed(needs(5), [1.0] * N).result.tried + 1


def test_a_start_outside_the_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"units \[-1, 4\]; valid are 0 to 3"):
        reduced([1.0] * 4, lambda kept: True, starts=[[4, -1, 0]])


@pytest.mark.parametrize("budget", range(29))
def test_a_spent_budget_gives_the_best_so_far(budget: int) -> None:
    executed: list[tuple[int, ...]] = []

    def failing(kept: tuple[int, ...]) -> bool:
        executed.append(kept)
        return {300, 301, 650} <= set(kept)

    result = reduced([1.0] * N, failing, over=lambda: len(executed) >= budget)
    assert result.tried == len(executed) == budget
    assert not result.minimal
    assert result.kept == min([tuple(range(N)), *(kept for kept in executed if {300, 301, 650} <= set(kept))], key=len)


def test_a_budget_that_is_just_enough_gives_a_minimal_set() -> None:
    needed = Executed(needs(300, 301, 650), [1.0] * N).result
    budget = iter(range(needed.tried))
    assert (
        reduced([1.0] * N, lambda kept: {300, 301, 650} <= set(kept), over=lambda: next(budget, None) is None) == needed
    )


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_is_executed_where_nothing_can_go(n: int) -> None:
    assert Executed(needs(), [1.0] * n).result == Reduced(tuple(range(n)), minimal=True, tried=0, failed=0)


def test_what_an_execution_raises_is_raised() -> None:
    def failing(kept: tuple[int, ...]) -> bool:
        raise OSError("no memory")

    with pytest.raises(OSError, match="no memory"):
        reduced([1.0] * 4, failing)


def test_it_executes_the_same_each_time() -> None:
    runs = [Executed(needs(20, 31, 77), COSTS["wide"](100)) for _ in range(2)]
    assert runs[0].candidates == runs[1].candidates
    assert runs[0].result == runs[1].result
