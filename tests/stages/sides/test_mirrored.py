"""Moved golds against plain float64 code: what they are, and that only what is wanted is kept."""

import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.stages.sides.mirrored import MOST_UNITS, mirrored_gold

WANTED = {("gradient", "weight"), ("output", "output")}


def test_moved_golds_are_float64_steps_at_mirrored_weights() -> None:
    torch.manual_seed(0)
    base = Case.of(nn.Linear(4, 3), (torch.randn(5, 4),), mode="training")
    ideal = base.to_gold()
    moved = mirrored_gold(base, ideal, 0, WANTED)
    assert moved is not None
    for leaves in moved:
        assert {(kind, place) for kind, found in leaves.items() for place in found} == WANTED
    above, below = (leaves["output"]["output"] for leaves in moved)
    weight, bias, x = (item.detach().double() for item in (*base.module.parameters(), *base.args))
    exact = x @ weight.T + bias
    most = MOST_UNITS * 2.0**-24 * (2 * x.abs() @ weight.abs().T + bias.abs())
    assert bool(((above - exact).abs() <= most * 1.01).all()) and not torch.equal(above, exact)
    torch.testing.assert_close((above + below) / 2, exact, rtol=0, atol=float(most.max()) * 1e-4)
    mirrored = [item.detach() for item in (*ideal.module.parameters(), *ideal.args)]
    torch.testing.assert_close(mirrored[2] @ mirrored[0].T + mirrored[1], below, rtol=0, atol=1e-12)
