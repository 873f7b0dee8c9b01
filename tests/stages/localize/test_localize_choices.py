"""Indices among equal values."""

import pytest
import torch

from inductor_debug.stages.localize.judging.choices import settled
from inductor_debug.stages.localize.judging.evaluation import exactly

aten = torch.ops.aten
TIED = torch.tensor([[2.0, 5.0, 5.0, 1.0], [3.0, 0.0, 3.0, 3.0]])


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("target", [aten.argmax.default, aten.max.dim], ids=str)
def test_an_index_of_an_equal_value_is_right_and_of_another_is_not(target: object, keepdim: bool) -> None:
    found = exactly(target, (TIED, 1, keepdim), {})
    right = found if isinstance(found, torch.Tensor) else found[1]
    other = torch.tensor([2, 3]).reshape(right.shape)
    assert torch.equal(settled(other, right), other)
    wrong = torch.tensor([3, 3]).reshape(right.shape)
    assert settled(wrong, right).flatten().tolist() == [int(right.flatten()[0]), 3]
    outside = torch.tensor([-2, 9]).reshape(right.shape)
    assert torch.equal(settled(outside, right), right)


def test_an_index_into_the_flattened_values_is_settled_too() -> None:
    right = exactly(aten.argmin.default, (torch.tensor([[1.0, 0.0], [0.0, 2.0]]),), {})
    assert settled(torch.tensor(2), right) == 2
    assert settled(torch.tensor(3), right) == right


def test_a_sort_may_order_equal_values_as_it_likes_but_has_each_once() -> None:
    right = exactly(aten.sort.default, (torch.tensor([4, 4, 1]),), {})[1]
    assert right.tolist() == [2, 0, 1]
    assert settled(torch.tensor([2, 1, 0]), right).tolist() == [2, 1, 0]
    assert settled(torch.tensor([2, 1, 1]), right).tolist() == [2, 0, 1]


def test_other_integers_are_as_they_are() -> None:
    right = exactly(aten.ge.Scalar, (TIED, 3), {})
    assert settled(~right, right) is right
