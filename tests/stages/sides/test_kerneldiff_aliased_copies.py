"""Inputs with other values: what shared memory goes on sharing it, in any layout."""

from collections.abc import Callable

import pytest
import torch

from inductor_debug.stages.sides.aliased_copies import aliased_copies

LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a slice": lambda base: base[1:3],
    "a transpose": lambda base: base.t(),
    "another dtype": lambda base: base.view(torch.int32),
    "a window": lambda base: base.view(-1).unfold(0, 6, 2),
    "expanded": lambda base: base[:, :1].expand(4, 5),
    "complex": lambda base: torch.view_as_complex(base.view(-1, 2)),
}


def pair(layout: str, seed: int) -> dict[str, torch.Tensor]:
    base = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
    return {"whole": base, "view": LAYOUTS[layout](base)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_of_one_storage_stay_views_of_one(layout: str) -> None:
    mine, values = pair(layout, 0), {name: tensor.clone() for name, tensor in pair(layout, 1).items()}
    before = mine["whole"].clone()
    found = aliased_copies(mine, values)
    whole, view = (found[id(mine[name])] for name in ("whole", "view"))
    assert torch.equal(whole, values["whole"]) and torch.equal(view, values["view"])
    assert (view.shape, view.stride()) == (mine["view"].shape, mine["view"].stride())
    assert whole.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    assert torch.equal(mine["whole"], before)


def test_what_holds_its_value_already_stays_itself_unless_it_shares_memory_with_what_does_not() -> None:
    base, other = torch.zeros(6), torch.ones(3)
    mine = {"first": base[:3], "last": base[3:], "other": other, "again": base[:3]}
    values = {name: tensor.clone() for name, tensor in mine.items()} | {"last": torch.ones(3)}
    assert set(aliased_copies(mine, values)) == {id(mine[name]) for name in ("first", "last", "again")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_a_tensor_alone_takes_its_values_whatever_its_strides(dtype: torch.dtype) -> None:
    made = (torch.zeros(3, 1, dtype=dtype, requires_grad=True) * 1).expand(3, 4)
    value = torch.arange(12).reshape(3, 4).to(dtype)
    (filled,) = aliased_copies({"x": made}, {"x": value}).values()
    assert torch.equal(filled, value) and filled.requires_grad and filled.is_leaf
