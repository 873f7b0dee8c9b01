"""Other content for the inputs of a case."""

import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.input_draws import FEW, MOST, SPECIAL, drawn_inputs


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))

    def forward(self, x: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def case_of(**inputs: torch.Tensor) -> Case:
    return Case.of(Net(), (), {"x": torch.randn(40, 6)} | inputs)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_values_are_the_tensors_own_in_another_order_or_with_ties(number: int, dtype: torch.dtype) -> None:
    tensor = torch.randperm(200).to(dtype)
    case = case_of(tokens=tensor)
    before, values = tensor.clone(), set(tensor.tolist())
    with drawn_inputs(case, number) as varies:
        assert varies and case.kwargs["tokens"] is tensor and not torch.equal(tensor, before)
        assert set(tensor.tolist()) <= values
        if number % 2:
            assert torch.equal(tensor.sort().values, before.sort().values)
        else:
            assert 1 < len(set(tensor.tolist())) <= FEW
    assert torch.equal(tensor, before)


def test_what_is_put_back_is_put_back_after_an_exception_too() -> None:
    case = case_of()
    before = case.kwargs["x"].clone()
    with pytest.raises(ValueError, match="planted"), drawn_inputs(case, 1):
        raise ValueError("planted")
    assert torch.equal(case.kwargs["x"], before)


def test_masks_constants_and_what_is_the_modules_stay() -> None:
    stays = {
        "mask": torch.randint(2, (40,)),
        "flags": torch.rand(40) > 0.5,
        "constant": torch.ones(40),
        "wide": torch.randn(4, 1).expand(4, 5),
        "windows": torch.randn(8).as_strided((6, 3), (1, 1)),
        "complex": torch.randn(4, dtype=torch.complex64),
        "sparse": torch.eye(3).to_sparse(),
    }
    case = case_of(**stays)
    case.kwargs["own"] = case.module.weight
    before = {name: tensor.clone() for name, tensor in stays.items()}
    weight = case.module.weight.detach().clone()
    with drawn_inputs(case, 1) as varies:
        assert varies  # x
        for name, tensor in stays.items():
            assert torch.equal(tensor.to_dense(), before[name].to_dense()), name
        assert torch.equal(case.module.weight, weight)


def test_nothing_varies_where_there_is_nothing_to_vary() -> None:
    with drawn_inputs(Case.of(Net(), (torch.ones(6),)), 1) as varies:
        assert not varies
    with drawn_inputs(case_of(), 0) as varies:
        assert not varies


def test_another_case_gets_the_same_values_in_its_dtype_and_strides_stay() -> None:
    x = torch.randn(6, 40).T.requires_grad_()
    x = x.detach().requires_grad_()
    case = Case.of(Net(), (), {"x": x})
    wide = case.to_gold()
    with drawn_inputs(case, 2, wide):
        assert x.stride() == (1, 40) and x.requires_grad
        assert torch.equal(wide.kwargs["x"], x.double())
        first = x.detach().clone()
    case.seed += 1
    with drawn_inputs(case, 2):
        assert not torch.equal(x, first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_special_draws_put_their_values_into_a_tenth_of_floating_inputs(dtype: torch.dtype) -> None:
    case = case_of(x=torch.randn(40, 6, dtype=dtype), tokens=torch.arange(9))
    before = case.kwargs["x"].clone()
    for index, name in enumerate(SPECIAL):
        with drawn_inputs(case, MOST + index) as varies:
            x = case.kwargs["x"]
            changed = (x != before) | x.isnan()
            assert varies and int(changed.sum()) == 24 and torch.equal(case.kwargs["tokens"], torch.arange(9)), name
            magnitudes = x[changed].abs().unique()
            assert len(magnitudes) == 1 or bool(magnitudes.isnan().all())
        assert torch.equal(case.kwargs["x"], before)
