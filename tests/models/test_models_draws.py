"""Gold draws the random numbers that the case draws in its own dtype, or says that it could not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from inductor_debug.models.case import Case

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


class Drawing(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(64, 64), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        return self.layer(self.function(hidden))


def attention(x: torch.Tensor, *, causal: bool = False, probability: float = 0.3) -> torch.Tensor:
    heads = x.view(2, -1, 4, 16).transpose(1, 2)
    output = F.scaled_dot_product_attention(heads, heads, heads, dropout_p=probability, is_causal=causal)
    return output.transpose(1, 2).flatten(2)


DRAWING: dict[str, Callable[..., torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout of a transposed tensor": lambda x: F.dropout(x.transpose(0, 1), 0.3).transpose(0, 1),
    "channel dropout": lambda x: F.dropout1d(x, 0.3),
    "two dropouts": lambda x: F.dropout(F.gelu(F.dropout(x, 0.1)), 0.5),
    "randn_like": lambda x: x + torch.randn_like(x),
    "rand": lambda x: x * torch.rand(x.shape[-1], device=x.device).to(x.dtype),
    "rand of a named dtype": lambda x: x * torch.rand(x.shape[-1], dtype=torch.float32, device=x.device).to(x.dtype),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.25)),
    "normal_": lambda x: x + torch.empty_like(x).normal_(0, 0.1),
    "randint": lambda x: x * torch.randint(0, 5, (x.shape[-1],), device=x.device),
    "randperm": lambda x: x[..., torch.randperm(x.shape[-1], device=x.device)],
    "multinomial": lambda x: x[:, torch.multinomial(torch.ones(x.shape[1], device=x.device), 50)],
    "attention": attention,
    "causal attention": lambda x: attention(x, causal=True),
    "dropout beside attention without": lambda x: F.dropout(attention(F.dropout(x, 0.1), probability=0.0), 0.3),
    "dropout behind a draw of nothing": lambda x: F.dropout(x, 0.3) + torch.rand(0, device=x.device).sum().to(x.dtype),
    "checkpoint": lambda x: checkpoint(lambda y: F.dropout(y, 0.3), x, use_reentrant=False),
}


def case_of(function: Callable[..., torch.Tensor], dtype: torch.dtype, device: str, mode: str = "training") -> Case:
    torch.manual_seed(1)
    module = Drawing(function).to(device, dtype).train(mode == "training")
    x = torch.randn(2, 50, 64).to(device, dtype)
    return Case("drawing", module, (x,), {}, mode, dtype, torch.device(device), seed=3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", DRAWING)
def test_gold_differs_by_rounding_alone(name: str, dtype: torch.dtype, device: str) -> None:
    case = case_of(DRAWING[name], dtype, device)
    reference = case.run()
    case.watch_draws()
    assert case.draws is not None and case.draws.items
    again, gold = case.run(), case.to_gold().run()
    assert case.draws.matched
    assert torch.equal(reference.output, again.output)
    assert gold.output.dtype == torch.float64
    limit = 100 * torch.finfo(dtype).eps
    for mine, exact in [
        (reference.output, gold.output),
        *((gradient, gold.gradients[key]) for key, gradient in reference.gradients.items()),
    ]:
        error = (mine.double() - exact).square().mean().sqrt()
        assert error <= limit * exact.square().mean().sqrt(), (name, error)


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_draws_alike(device: str) -> None:
    case = case_of(DRAWING["two dropouts"], torch.bfloat16, device)
    case.module.float()
    case.args, case.precision = (case.args[0].float(),), "autocast"
    reference = case.run()
    case.watch_draws()
    gold = case.to_gold().run()
    assert case.draws is not None and case.draws.matched
    assert (reference.output.double() - gold.output).abs().max() < 0.1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.rrelu(x, training=True),  # computes with what it draws
        lambda x: F.dropout(F.dropout(x, 0.3) if x.dtype == torch.float64 else x, 0.3),  # gold draws once more
        lambda x: F.dropout(x if x.dtype == torch.float64 else F.dropout(x, 0.3), 0.3),  # gold draws once less
        lambda x: F.dropout(x, 0.2 if x.dtype == torch.float64 else 0.3),
        lambda x: attention(F.dropout(x, 0.3), probability=0.3 * (x.dtype == torch.float64)),  # behind a match
        lambda x: x + torch.rand(3 + (x.dtype == torch.float64))[0],
    ],
)
def test_what_can_not_be_repeated_is_told(function: Callable[..., torch.Tensor]) -> None:
    case = case_of(function, torch.float32, "cpu")
    case.watch_draws()
    case.to_gold().run()
    assert case.draws is not None and not case.draws.matched


def test_another_seed_is_not_repeated() -> None:
    case = case_of(DRAWING["dropout"], torch.float32, "cpu")
    case.watch_draws()
    case.seed = 4
    case.to_gold().run()
    assert case.draws is not None and not case.draws.matched


def test_watching_leaves_the_case_as_it_was() -> None:
    case = case_of(DRAWING["dropout"], torch.float32, "cpu")
    before = torch.get_rng_state(), {name: value.clone() for name, value in case.module.state_dict().items()}
    case.watch_draws()
    assert torch.equal(before[0], torch.get_rng_state())
    assert all(torch.equal(value, before[1][name]) for name, value in case.module.state_dict().items())
    assert all(parameter.grad is None for parameter in case.module.parameters())
