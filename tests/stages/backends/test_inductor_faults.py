"""TorchInductor is wrong inside each of the contexts that plant a fault in it, and right again behind it."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from bisect_faults import inductor_config, injected_bug
from inductor_faults import SOURCES, wrong_lowering_at, wrong_operator, wrong_source
from torch import Tensor

X = torch.randn(33, 40, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def unset_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a kernel is to write holds NaN before: it may otherwise hold the result of an earlier run."""
    guards = torch._C._dynamo.guards
    unset = guards._empty_strided_cpu
    monkeypatch.setattr(guards, "_empty_strided_cpu", lambda *args: unset(*args).fill_(torch.nan))


def model(x: Tensor) -> Tensor:
    return torch.relu(torch.exp(x) * 0.3) + torch.log1p(x * x)


def compiled(function: Callable[..., Any]) -> Tensor:
    torch._dynamo.reset()
    result: Tensor = torch.compile(function, backend="inductor")(X)
    return result


CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "lowering": lambda: wrong_lowering_at("exp", "scaled"),
    "operator": lambda: wrong_operator("exp"),
    "short_loop": lambda: wrong_source("short_loop"),
    "wrong_literal": lambda: wrong_source("wrong_literal"),
    "relu": lambda: injected_bug("cpp.inject_relu_bug_TESTING_ONLY"),
    "log1p": lambda: inductor_config(**{"cpp.inject_log1p_bug_TESTING_ONLY": "accuracy", "cpp.simdlen": 0}),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_what_is_compiled_inside_is_wrong_and_right_behind_it(name: str) -> None:
    with CONTEXTS[name]() as told:
        assert not torch.allclose(compiled(model), model(X))
    assert told is None or told
    torch.testing.assert_close(compiled(model), model(X))


def test_one_place_of_the_text_is_changed() -> None:
    with wrong_source("short_loop") as found:
        result = compiled(model)
    wrong = ~((result - model(X)).abs() <= 1e-4)
    assert len(found) == 1 and 0 < int(wrong.sum()) < X.numel()
    assert result[wrong].isnan().all()


def test_tritons_mask_is_found_in_its_text() -> None:
    text = "    xmask = xindex < xnumel\n"
    change = SOURCES["short_mask"]
    assert re.sub(change.pattern, change.put, text) == "    xmask = xindex < xnumel - 1\n"


def test_tritons_operators_are_wrong_too() -> None:
    """Their text alone: it runs on a GPU."""
    from torch._inductor.codegen.triton import TritonOverrides

    right = TritonOverrides.rsqrt("tmp0")
    with wrong_operator("rsqrt"):
        assert TritonOverrides.rsqrt("tmp0") == f"({right}) * 1.01"
    assert TritonOverrides.rsqrt("tmp0") == right
