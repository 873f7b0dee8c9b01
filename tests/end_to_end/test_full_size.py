"""The three models at full size through the command line: the runs that the project is for."""

from collections.abc import Callable

import pytest
from command_line import QUICK, Finished

pytestmark = pytest.mark.slow

GOOD = {"exact", "within_floor", "within_tolerance"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("model=bert", "accel=warn16"),
        ("model=bert", "accel=strict16", "dtype=bfloat16"),
        ("model=resnet18", "accel=warn16", "mode=training"),
        ("model=resnet18", "dtype=bfloat16"),
        ("model=huggingface", "model.build.config=GPT2Config", "accel=warn16"),
    ],
    ids=" ".join,
)
def test_clean_inductor_passes_at_full_size(arguments: tuple[str, ...], run: Callable[..., Finished]) -> None:
    finished = run(*arguments, *QUICK)
    assert finished.code == 0, finished.output
    assert set(finished.statuses().values()) == {"passed"}
    assert finished.summary["numerics"]["verdict"] in GOOD
    assert finished.summary["numerics"]["compared"] > 0


def test_resnet_breaks_a_strict_profile(run: Callable[..., Finished]) -> None:
    finished = run("model=resnet18", "accel=strict16")
    assert finished.code == 1
    assert finished.statuses()["constrain"] == "failed" and finished.statuses()["lower"] == "skipped"
    assert finished.table("constrain/violations.csv")["source"].str.contains("resnet.py:").any()
