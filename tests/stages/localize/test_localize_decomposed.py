"""Wrong decompositions: no operation of the graph that is compiled is wrong, and yet it is not what was meant."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from inductor_debug import localize
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.localize.engine import Localized
from inductor_debug.stages.torch_internals.inductor import inductor_decompositions

aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(12, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.gelu(self.norm(2 * self.first(x)))).softmax(-1)


def found_with(table: dict[Any, Callable[..., Any]], mode: str, dtype: torch.dtype = torch.float32) -> Localized:
    class Decomposing(AotEagerAdapter):
        decompositions = table

    torch.manual_seed(0)
    module = Net().to(dtype).train(mode == "training")
    return localize(module, (torch.randn(8, 12, dtype=dtype),), backend=Decomposing(), mode=mode)


def tanh_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def norm_backward(
    gradient: Tensor, x: Tensor, shape: list[int], mean: Tensor, rstd: Tensor, weight: Tensor, bias: Tensor,
    asked: list[bool],
) -> Any:  # fmt: skip
    """Without the mean of the gradient."""
    normal = (x - mean) * rstd
    scaled = gradient * weight
    own = (scaled - normal * (scaled * normal).mean(-1, keepdim=True)) * rstd
    return own, (gradient * normal).sum(0), gradient.sum(0)


@pytest.mark.parametrize(
    ("target", "wrong", "mode", "graph"),
    [
        (aten.gelu.default, tanh_gelu, "inference", "g0.forward"),
        (aten.native_layer_norm_backward.default, norm_backward, "training", "g0.backward"),
    ],
    ids=["gelu", "layer_norm_backward"],
)
def test_a_decomposition_that_is_not_its_operator_is_named(
    target: Any, wrong: Callable[..., Any], mode: str, graph: str
) -> None:
    found = found_with({target: wrong}, mode)
    (item,) = found.localization.culprits
    assert (item.place.graph, item.place.target) == (graph, str(target)) and item.place.source.startswith(__file__)
    assert item.shows == ["in its decomposition, in float64"] and found.localization.kind == "operation"
    assert found.localization.closure is None  # the shares are of the graph's own errors, and this is none of them
    assert all(row.state != "wrong" for row in found.rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torchs_own_decompositions_name_nothing(dtype: torch.dtype) -> None:
    found = found_with(dict(inductor_decompositions()), "training", dtype)
    assert found.localization.culprits == []
