"""Modules that torch runs and a compiler does not, each for a reason that no graph shows."""

from typing import Any

import torch

FLAG = 0
WIDTH = 16


class Part(torch.nn.Module):
    """Linear → normalization → what goes wrong → linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)
        self.second = torch.nn.Linear(WIDTH, WIDTH)
        self.seen = 0
        self.width: int = WIDTH

    def forward(self, x: torch.Tensor, *given: Any) -> torch.Tensor:
        """The result of a layer."""
        hidden = torch.relu(self.norm(self.first(x)))
        shift = hidden.mean(-1, keepdim=True) / self.width
        hidden = self.wrong(hidden, *given) - shift
        return x + self.second(hidden)

    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Counting(Part):
    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return x * self.seen


class Global(Part):
    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        global FLAG
        FLAG = FLAG + 1
        return x * FLAG


class Alternating(Part):
    def __init__(self) -> None:
        super().__init__()
        self.even = False

    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        self.even = not self.even
        return x if self.even else -x


class Scaled(Part):
    def wrong(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return x * scale


class Growing(Part):
    def wrong(self, x: torch.Tensor, history: list[int]) -> torch.Tensor:
        return x + len(history)


class Hanging(Part):
    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        while torch.compiler.is_compiling():
            x = x + 1
        return x


class Unsupported(Part):
    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum().item() > 0) if x.sum() > 0 else x


class Different(Part):
    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        return blurred(x, 0.5) if torch.compiler.is_compiling() else x


class Third(Part):
    def wrong(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        if torch.compiler.is_compiling() and self.seen == 3:
            x = x + 1
        return x


def blurred(x: torch.Tensor, share: float) -> torch.Tensor:
    return x * (1 - share) + x.mean() * share


def closed_over() -> torch.nn.Module:
    """A module whose method counts in a variable of the function that made its class."""
    times = [1]

    class Closed(Part):
        def wrong(self, x: torch.Tensor) -> torch.Tensor:
            times[0] += 1
            return x * times[0]

    return Closed()


class Encoder(torch.nn.Module):
    """Layers one after another, of which one gets what the model is given beside its input."""

    def __init__(self, odd: torch.nn.Module, layers: int = 3) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Part() for _ in range(layers)])
        self.layers[1] = odd

    def forward(self, x: torch.Tensor, *given: Any) -> torch.Tensor:
        for place, layer in enumerate(self.layers):
            x = layer(x, *given) if place == 1 else layer(x)
        return x


class Model(torch.nn.Module):
    """An embedding, an encoder and a head."""

    def __init__(self, odd: torch.nn.Module) -> None:
        super().__init__()
        self.embed, self.encoder = torch.nn.Embedding(32, WIDTH), Encoder(odd)
        self.head = torch.nn.Linear(WIDTH, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor, *given: Any) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens), *given)).log_softmax(-1)
