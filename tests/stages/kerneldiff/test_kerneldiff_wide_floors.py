"""A wide floor that stays the same with other rounding is no noise."""

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff import bias
from inductor_debug.stages.kerneldiff.bias import withdrawn
from inductor_debug.stages.kerneldiff.reviews import decide
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.sides.running import Side

ROUNDOFF = 2.0**-9


def reviewed(monkeypatch: pytest.MonkeyPatch, *changes: float) -> str:
    """The verdict of a wide floor whose difference changes, from draw to draw, by these shares of it, by RMS."""
    torch.manual_seed(0)
    reference, difference, other = torch.randn(3, 256).unbind()
    difference *= 0.5
    other *= difference.norm() / other.norm()
    leaves = {"output": {"": reference}}
    gold = {"output": {"": reference.double() - difference}}
    given = [Side({"output": {"": reference + change * other}}) for change in changes]
    monkeypatch.setattr(bias, "rounded_reference", lambda base, index, run: given[index])
    row = TensorComparison("output", "", verdict="within_floor", bound="floor_rms", mismatched=256, elements=256)
    case = Case("net", torch.nn.Identity(), (), {}, "inference", torch.bfloat16, torch.device("cpu"))
    decide("systematic floor", [row], withdrawn([row], case, leaves, gold, ROUNDOFF), [])
    return row.verdict


def test_one_that_stays_in_every_draw_does_not_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reviewed(monkeypatch, 0.05, 0.09, -0.05) == "not_established"


@pytest.mark.parametrize("changes", [(0.12, 0.0, 0.0), (0.0, 0.0, 0.12), (0.3, 0.3, 0.3)])
def test_one_that_moves_by_more_than_a_tenth_in_any_draw_is_noise(
    monkeypatch: pytest.MonkeyPatch, changes: tuple[float, ...]
) -> None:
    assert reviewed(monkeypatch, *changes) == "within_floor"
