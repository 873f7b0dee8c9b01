"""What `make same-as` compares."""

import sys
from pathlib import Path

import pytest

TRIALS = Path(__file__).parents[1] / "trials"


@pytest.fixture
def same_as(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TRIALS))
    monkeypatch.delitem(sys.modules, "same_as", raising=False)
    import same_as

    return same_as


def test_the_jobs_are_ten_and_every_override_is_a_word(same_as) -> None:
    jobs = same_as.frozen_jobs()
    assert len(jobs) == 10 and all("=" in word for words in jobs.values() for word in words)


def test_each_difference_is_told_by_its_place(same_as) -> None:
    before = {"numerics": {"verdict": "exact", "max": 0.0}, "rows": [["a", 1], ["b", 2]], "gone": 1}
    after = {"numerics": {"verdict": "defect", "max": 0.0}, "rows": [["a", 1], ["b", 3]], "new": None}
    assert list(same_as.differences(before, after)) == [
        'numerics: verdict: "exact" → "defect"', "rows: 1: 1: 2 → 3", "gone: only before", "new: only after",
    ]  # fmt: skip
    assert list(same_as.differences([1, 2], [1])) == ["[1, 2] → [1]"]
    assert list(same_as.differences({"a": 1}, {"a": True})) == ["a: 1 → true"]
    assert not list(same_as.differences(before, before))
