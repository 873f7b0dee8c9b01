"""What torch says, as the installed torch says it."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from inductor_debug.models.torch_text import (
    MARK,
    UnfitSize,
    bytes_told,
    function_name,
    is_about_dtype,
    tells_out_of_memory,
    unfit_sizes,
)


def said(call: Callable[[], object]) -> str:
    with pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value)


def test_memory_that_there_is_not() -> None:
    for size, told in ((2**50, 2**52), (2**62, 2**63)):
        message = said(lambda size=size: torch.empty(size))
        assert tells_out_of_memory(message) and bytes_told(message) == told
    other = said(lambda: torch.ones(2) @ torch.ones(3))
    assert not tells_out_of_memory(other) and bytes_told(other) is None


@pytest.mark.parametrize(
    ("call", "unfit"),
    [
        (lambda: F.linear(torch.ones(2, 3, 8), torch.ones(5, 7)), UnfitSize(-1, 8, 7)),
        (lambda: F.layer_norm(torch.ones(2, 3, 8), (7,)), UnfitSize(-1, 8, 7)),
        (lambda: F.conv1d(torch.ones(2, 3, 8), torch.ones(5, 4, 1)), UnfitSize(1, 3, 4)),
    ],
    ids=["linear", "layer_norm", "conv1d"],
)
def test_a_size_that_does_not_fit(call: Callable[[], object], unfit: UnfitSize) -> None:
    assert unfit_sizes(said(call)) == [unfit]


def test_a_dtype_that_an_operation_does_not_take() -> None:
    assert is_about_dtype(said(lambda: torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.int64)))
    assert is_about_dtype(said(lambda: torch.linalg.inv(torch.ones(2, 2, dtype=torch.float16))))
    assert not is_about_dtype(said(lambda: torch.ones(2) + torch.ones(3)))


def broken(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def test_a_function_that_dynamo_resumed_has_its_own_name() -> None:
    torch.compile(broken, backend="eager")(torch.ones(2))
    names = [item.__code__.co_name for name, item in globals().items() if name.startswith("__resume_at")]
    assert names and set(map(function_name, names)) == {"broken"} and "broken" not in names
    assert function_name("broken") == "broken"


def test_what_marks_a_dynamic_dimension() -> None:
    x = torch.ones(4, 2)
    torch._dynamo.mark_dynamic(x, 0)
    assert any(name.startswith(MARK) and value == {0} for name, value in vars(x).items())
