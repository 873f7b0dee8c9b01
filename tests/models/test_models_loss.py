"""The loss of a training step."""

import math

import numpy
import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.loss import training_loss


def test_own_loss_is_used_where_there_is_one() -> None:
    x = torch.ones(2, requires_grad=True)
    own = (x * 3).sum()
    assert training_loss({"loss": own, "logits": x}, {}) is not None
    assert training_loss({"loss": own, "logits": x}, {}).item() == 6


def test_each_output_counts_by_the_root_of_its_size() -> None:
    """Computed by hand from NumPy's generator."""
    x = torch.ones(3, requires_grad=True)
    found = training_loss({"logits": x, "other": (x * 3, torch.arange(4))}, {})
    first, second = (numpy.random.default_rng([0, 0, place]).standard_normal(3, numpy.float32) for place in (0, 1))
    assert found.item() == pytest.approx((first.sum() + 3 * second.sum()) / math.sqrt(3), rel=1e-5)


@pytest.mark.parametrize(("dtype", "accumulator"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_it_is_in_float32_unless_an_output_is_wider(dtype: torch.dtype, accumulator: torch.dtype) -> None:
    x = torch.ones(2, requires_grad=True, dtype=dtype)
    assert training_loss([x], {}).dtype == accumulator


def test_every_element_has_its_own_gradient_behind_a_normalization() -> None:
    """The mean square of a normalized tensor is constant, and its gradients remainders."""
    case = Case.of(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)), (torch.randn(4, 64),), mode="training")
    gradients = case.run().gradients
    exact = case.to_gold()
    noise = {
        name: ((gradients[name].double() - gold).norm() / gold.norm()).item()
        for name, gold in exact.run(exact.module).gradients.items()
    }
    assert max(noise.values()) < 1e-5


def test_gold_has_the_same_random_tensors() -> None:
    case = Case.of(nn.Linear(5, 3), (torch.randn(2, 5),), mode="training")
    gold = case.to_gold()
    exact = gold.run(gold.module).loss
    assert exact is not None and exact.dtype == torch.float64
    ours = case.run().loss
    assert ours is not None
    torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-6)
    assert len(case.projections) == 1


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_of_a_nested_tensor_the_rows_count(layout: torch.layout) -> None:
    rows = [torch.ones(2, 3, requires_grad=True), torch.ones(1, 3, requires_grad=True)]
    training_loss(torch.nested.as_nested_tensor(rows, layout=layout), {}).backward()
    assert all(row.grad is not None and row.grad.unique().numel() == row.numel() for row in rows)


def test_a_sparse_output_counts_in_full() -> None:
    values = torch.ones(2, requires_grad=True)
    training_loss(torch.sparse_coo_tensor(torch.tensor([[0, 2]]), values, (4,)), {}).backward()
    assert values.grad is not None and values.grad.unique().numel() == 2


def test_training_without_a_differentiable_output_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="mode=training"):
        training_loss({"ids": torch.ones(2, dtype=torch.int64), "values": torch.ones(2)}, {})
