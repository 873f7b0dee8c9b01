"""The floor of a training loss that is the product of the outputs with random tensors."""

from unittest import mock

import torch
from torch import nn

from inductor_debug.models.loss import training_loss
from inductor_debug.stages.kerneldiff import diff as comparing
from inductor_debug.stages.kerneldiff.diff import diff
from inductor_debug.stages.numerics.comparison import KernelDiff


def rounded(exact: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """To bfloat16's precision, each element up or down by chance."""
    scale = 2.0 ** (exact.abs().log2().floor() - 7)
    return (exact / scale + torch.rand(exact.shape, generator=generator, dtype=exact.dtype)).floor() * scale


def ratio(seed: int, *, known: bool) -> float:
    """The loss's error over its floor, of two right roundings of two outputs."""
    generator = torch.Generator().manual_seed(seed)
    exact = [torch.randn(4, 64, generator=generator, dtype=torch.float64) * size for size in (1, 50)]
    sides = [exact, *([rounded(tensor, generator) for tensor in exact] for _ in range(2))]
    losses = [training_loss([tensor.requires_grad_() for tensor in side], {}).detach() for side in sides]
    difference = KernelDiff(roundoff=2.0**-24)
    gold, reference, test = ({str(place): tensor.detach() for place, tensor in enumerate(side)} for side in sides)
    narrow = ({path: tensor.bfloat16() for path, tensor in side.items()} for side in (reference, test))
    difference.compare_leaves(*narrow, gold, kind="output")
    noise = comparing.projected_noise(difference.rows) if known else None
    leaves = ({"loss": loss.to(dtype)} for loss, dtype in zip(
        (losses[1], losses[2], losses[0]), (torch.float32, torch.float32, torch.float64), strict=True))  # fmt: skip
    found = difference.compare_leaves(*leaves, kind="loss", noise=noise)[0].ratio
    assert found is not None
    return found


def test_two_right_roundings_never_differ_by_four_floors_but_by_four_draws() -> None:
    assert max(ratio(seed, known=True) for seed in range(200)) <= 4
    assert sum(ratio(seed, known=False) > 4 for seed in range(200)) > 10


def test_the_stage_knows_the_noise_of_its_own_loss_and_not_of_the_models() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            found = self.layer(x)
            return {"loss": found.square().mean(), "logits": found}

    with mock.patch.object(comparing, "projected_noise", return_value=0.125) as asked:
        found = diff(nn.Linear(8, 4), (torch.randn(3, 8),), backend="aot_eager", mode="training")
        assert [row.floor_rms for row in found.rows if row.kind == "loss"] == [0.125]
        asked.reset_mock()
        found = diff(Own(), (torch.randn(3, 8),), backend="aot_eager", mode="training")
        assert found.verdict == "exact" and not asked.called
