"""A few trials of ``tests/trials/kills.py``, each at a moment that is known."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "trials"))

import kills

QUICK = "stages=[capture,report]"
TRIALS = {
    "parent killed in a stage": lambda place: kills.kill(place, "parent", "SIGKILL", "capture …", CHOICE, QUICK),
    "terminal closed": lambda place: kills.kill(place, "parent", "SIGHUP", "capture …", CHOICE, QUICK),
    "worker killed": lambda place: kills.kill(place, "worker", "SIGKILL", "capture …", CHOICE, QUICK),
    "killed and started again": lambda place: kills.again(place, "capture …", QUICK),
    "two at once": lambda place: kills.two_at_once(place, QUICK),
    "foreign bytes": lambda place: kills.misbehave(place, "foreign", QUICK),
    "reader leaves": lambda place: kills.streams(place, "reader leaves", QUICK),
}
CHOICE = random.Random(0)


@pytest.mark.parametrize("trial", TRIALS.values(), ids=[name.replace(" ", "_") for name in TRIALS])
def test_a_fault_leaves_nothing_wrong(tmp_path: Path, trial: Callable[[kills.Place], None]) -> None:
    place = kills.Place(tmp_path / "trial")
    trial(place)
    assert not place.wrong
