"""Copies of what tensors hold that later snapshots take again."""

import gc
import weakref

import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.contents import Content, Contents, same_bits
from inductor_debug.models.snapshot import Snapshot


def holding(*values: float) -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(torch.tensor(values))
    return module


def test_a_later_snapshot_takes_the_copy_of_an_earlier_one() -> None:
    module, contents = holding(1.0, 2.0), Contents()
    first = Snapshot(module, contents=contents)
    first.restore()
    assert Snapshot(module, contents=contents).of(module.weight).content is first.of(module.weight).content
    assert Snapshot(module).of(module.weight).content is not first.of(module.weight).content


@pytest.mark.parametrize("past_torch", [False, True])
def test_what_was_written_in_between_is_copied_anew(past_torch: bool) -> None:
    module, contents = holding(1.0, 2.0), Contents()
    Snapshot(module, contents=contents).restore()
    if past_torch:
        module.weight.data.mul_(3)  # no version counter of the parameter's sees it
    else:
        with torch.no_grad():
            module.weight.mul_(3)
    later = Snapshot(module, contents=contents)
    module.weight.data.zero_()
    later.restore()
    assert module.weight.tolist() == [3.0, 6.0]


def test_weights_that_their_user_changes_between_two_runs_stay_changed() -> None:
    case = Case.of(nn.Linear(3, 2), (torch.ones(4, 3),))
    case.run()
    case.module.weight.data.fill_(0.5)
    case.module.bias.detach().numpy()[:] = 0.25
    result = case.run()
    assert not result.written
    assert case.module.weight.unique().tolist() == [0.5]
    assert result.output.unique().tolist() == [1.75]


def test_tensors_that_share_memory_are_put_back() -> None:
    module, contents = holding(1.0, 2.0), Contents()
    module.tail = module.weight.data[1:]  # a version counter of its own
    Snapshot(module, contents=contents).restore()
    with torch.no_grad():
        module.weight.mul_(3)
    later = Snapshot(module, contents=contents)
    module.weight.data.zero_()
    later.restore()
    assert module.weight.tolist() == [3.0, 6.0]
    assert module.tail.tolist() == [6.0]


def test_no_copy_outlives_the_case() -> None:
    module = nn.Linear(3, 2)
    case = Case.of(module, (torch.ones(4, 3),))
    case.run()
    values = weakref.ref(case.contents.of(module.weight).values)
    del case
    gc.collect()
    assert values() is None


def test_memory_that_was_resized_comes_back_without_being_the_copy() -> None:
    module = holding(1.0, 2.0)
    later = Snapshot(module)
    module.weight.untyped_storage().resize_(0)
    later.restore()
    assert module.weight.tolist() == [1.0, 2.0]
    module.weight.data.zero_()
    assert later.of(module.weight).content.copied().tolist() == [1.0, 2.0]


def test_gold_takes_no_copy_of_what_it_was_cast_from() -> None:
    case = Case.of(nn.Linear(3, 2), (torch.randn(4, 3),))
    case.run()
    gold = case.to_gold()
    content = gold.contents.of(gold.module.weight)
    assert content.values is case.contents.of(case.module.weight).values
    assert torch.equal(content.copied(), case.module.weight.double())


def test_gold_takes_copies_where_the_case_was_never_run() -> None:
    case = Case.of(nn.Linear(3, 2), (torch.randn(4, 3),))
    with torch.no_grad():
        gold = case.to_gold()
        case.module.weight.zero_()
    assert torch.equal(gold.contents.of(gold.module.weight).copied(), gold.module.weight)


def test_what_gold_writes_is_told_and_put_back() -> None:
    class Counting(nn.Linear):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.bias.data[0] += 1e-12  # less than float32 resolves
            return super().forward(value)

    case = Case.of(Counting(3, 2), (torch.randn(4, 3),))
    with torch.no_grad():
        case.module.bias.fill_(0.5)
    case.run()
    gold = case.to_gold()
    written = gold.run().written
    assert written["parameter"]["bias"].tolist() == [0.5 + 1e-12, 0.5]
    assert list(written["parameter"]) == ["bias"]
    assert gold.module.bias.tolist() == [0.5, 0.5]


def test_a_moved_gold_is_put_back_to_where_it_was_moved() -> None:
    case = Case.of(nn.Linear(3, 2), (torch.randn(4, 3),))
    case.run()
    gold = case.to_gold()
    with torch.no_grad():
        gold.module.weight.add_(1)
    moved = gold.module.weight.detach().clone()
    with gold.preserved(), torch.no_grad():
        gold.module.weight.zero_()
    assert torch.equal(gold.module.weight, moved)


def test_a_cast_content_is_compared_row_by_row() -> None:
    values = torch.randn(3000, 3000)
    wide = values.double()
    content = Content(values, torch.float64)
    assert content.held_by(wide)
    wide[2999, 2999] += 1e-13
    assert not content.held_by(wide)
    assert not content.held_by(values)
    assert Content(torch.tensor(1.5), torch.float64).held_by(torch.tensor(1.5, dtype=torch.float64))
    assert Content(torch.empty(0, 4), torch.float64).held_by(torch.empty(0, 4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.float32, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (8,), (5, 16)])
def test_bits_are_compared_whatever_their_number(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    left = torch.ones(shape, dtype=dtype)
    assert same_bits(left, left.clone())
    if left.numel():
        other = left.clone()
        other.view(-1)[-1] = 0
        assert not same_bits(left, other)
        assert not same_bits(torch.cat([left.flatten(), left.flatten()])[left.numel() :], other.flatten())


def test_a_case_whose_tensors_are_lent_has_no_copy_beside_gold() -> None:
    class Writing(nn.Linear):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.bias.data[0] += 1.0
            return super().forward(value)

    case = Case.of(Writing(3, 2), (torch.randn(4, 3),))
    case.run()
    before = case.module.bias.detach().clone()
    values = weakref.ref(case.contents.of(case.module.weight).values)
    with case.contents.lent():
        gold = case.to_gold()
        assert values() is None
        first = gold.run()
        assert torch.equal(first.written["parameter"]["bias"][0], before[0].double() + 1.0)
        assert torch.equal(gold.module.bias, before.double())
        assert torch.equal(gold.run().output, first.output)
    case.run()
    assert torch.equal(case.module.bias, before)
    content = gold.contents.of(gold.module.weight)
    with torch.no_grad():
        case.module.weight.zero_()
    assert content.copied().count_nonzero(), "a copy of its own, since the case may run again"
