"""A model one line of which takes nearly all of the time, and its case."""

import inspect

import torch

from inductor_debug.models.case import Case


@torch.library.custom_op("profile_tests::churn", mutates_args=())
def churn(x: torch.Tensor) -> torch.Tensor:
    """Much work for its size: the kernels beside it take microseconds."""
    waste = torch.linspace(0.1, 0.9, 400_000, dtype=x.dtype, device=x.device)
    for _ in range(4):
        waste = torch.tan(torch.sin(waste))
    return x + waste[-1]


@churn.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


churn.register_autograd(lambda context, gradient: gradient)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class Lopsided(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Block()
        self.second = Block()
        self.table = torch.nn.Embedding(2000, 32)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) * self.table(index)
        hidden = torch.ops.profile_tests.churn(hidden)
        scaled = torch.tanh(hidden) * 2.5
        return self.second(torch.softmax(scaled, -1))


def line_of(fragment: str, owner: type = Lopsided) -> str:
    """``file:line`` of the model's line that contains ``fragment``."""
    lines, first = inspect.getsourcelines(owner)
    number = first + next(index for index, line in enumerate(lines) if fragment in line)
    return f"{inspect.getsourcefile(owner)}:{number}"


def lopsided_case(mode: str = "training", device: str = "cpu") -> Case:
    torch.manual_seed(0)
    module = Lopsided().train(mode == "training").to(device)
    args = (torch.randn(16, 32, device=device), torch.arange(0, 1600, 100, device=device))
    return Case("lopsided", module, args, {}, mode, torch.float32, torch.device(device))
