"""Four small models for ``blind_faults.py``: a decoder, a U-Net, a recurrent network, and experts over a graph.

Each has sizes that differ where a fault should have a shape of its own, and squares where it would go unnoticed. All
that an initialization leaves constant is drawn. Each gives a loss and what it predicts.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Drawn = dict[str, Tensor]


def _drawn(module: nn.Module, seed: int) -> nn.Module:
    """Every parameter and every floating buffer drawn; scales about 1, variances above 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if not tensor.is_floating_point():
            continue
        noise = torch.randn(tensor.shape, generator=generator)
        with torch.no_grad():
            if name.endswith("running_var"):
                tensor.copy_(0.5 + noise.abs())
            elif tensor.dim() < 2:
                norm = any(part in name for part in ("norm", "scale")) and not name.endswith("bias")
                tensor.copy_(0.2 * noise + (1.0 if norm else 0.0))
            else:
                fan_in = tensor.shape[1] if tensor.dim() == 3 else tensor[0].numel()
                tensor.copy_(noise / fan_in**0.5)
    return module


class Attention(nn.Module):
    """Causal attention, written out or by torch's own."""

    def __init__(self, width: int, heads: int, written: bool) -> None:
        super().__init__()
        self.heads, self.written = heads, written
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.written:
            scores = (q @ k.transpose(-1, -2)) * (c // self.heads) ** -0.5
            mask = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
            y = self.dropout(torch.softmax(scores.masked_fill(mask, float("-inf")), -1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, c))


class Decoder(nn.Module):
    """Two layers over tied embeddings with a padding index."""

    def __init__(self, words: int = 97, width: int = 36, length: int = 18) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Embedding(length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.attentions = nn.ModuleList(Attention(width, 3, written) for written in (True, False))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(2))
        self.dropout = nn.Dropout(0.1)

    def forward(self, tokens: Tensor, labels: Tensor) -> Drawn:
        x = self.dropout(self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        for i in range(2):
            x = x + self.attentions[i](self.norms[2 * i](x))
            x = x + self.dropout(self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x)))))
        logits = self.norms[4](x) @ self.words.weight.t()
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Block(nn.Module):
    """Depthwise and pointwise, with batch norm and a bounded activation."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.deep = nn.Conv2d(before, before, 3, padding=1, groups=before, bias=False)
        self.norm = nn.BatchNorm2d(before)
        self.point = nn.Conv2d(before, after, 1)
        self.norm_groups = nn.GroupNorm(2, after)
        self.scale = nn.Parameter(torch.ones(after, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(2 * self.norm(self.deep(x)))
        return F.gelu(self.norm_groups(self.point(y))) * self.scale


class UNet(nn.Module):
    """One level down by a maximum, one by a mean, and up again with skips."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.first, self.second = Block(width, 2 * width), Block(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.joined = Block(4 * width, 2 * width)
        self.head = nn.Conv2d(3 * width, 5, 1)
        self.squeeze = nn.Linear(2 * width, 2 * width)
        self.dropout = nn.Dropout2d(0.2)

    def forward(self, image: Tensor, labels: Tensor) -> Drawn:
        a = F.relu(self.norm(self.stem(image)))
        b = self.first(F.max_pool2d(a, 3, stride=2, padding=1))
        c = self.dropout(self.second(F.avg_pool2d(b, 2)))
        d = self.joined(torch.cat([self.up(c), b], 1))
        d = d * torch.sigmoid(self.squeeze(d.mean((2, 3))))[:, :, None, None]
        e = F.interpolate(d, scale_factor=2.0, mode="bilinear", align_corners=False)
        logits = self.head(torch.cat([e, a], 1))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Recurrent(nn.Module):
    """A gated cell forwards, a state space backwards, of sequences of several lengths."""

    def __init__(self, features: int = 7, width: int = 24) -> None:
        super().__init__()
        self.width = width
        self.read = nn.Linear(features, 3 * width)
        self.turn = nn.Linear(width, 2 * width)
        self.own = nn.Linear(width, width)
        self.decay = nn.Parameter(torch.ones(width))
        self.step, self.drive = nn.Linear(features, width), nn.Linear(features, width)
        self.scale = nn.Parameter(torch.ones(2 * width))
        self.out = nn.Linear(2 * width, 1)
        self.dropout = nn.Dropout(0.2)

    def forward(self, series: Tensor, lengths: Tensor) -> Drawn:
        b, t, _ = series.shape
        x = (series - series.mean(1, keepdim=True)) / (series.var(1, keepdim=True) + 1e-5).sqrt()
        read = self.read(x)
        state = x.new_zeros(b, self.width)
        states = []
        for i in range(t):
            z, r, n = read[:, i].chunk(3, -1)
            turn_z, turn_r = self.turn(state).chunk(2, -1)
            z, r = torch.sigmoid(z + turn_z), torch.sigmoid(r + turn_r)
            state = (1 - z) * torch.tanh(n + r * self.own(state)) + z * state
            states.append(state)
        delta = F.softplus(3 * self.step(x))
        kept = torch.cumsum((-delta * self.decay.exp()).flip(1), 1).clamp(min=-12.0)
        scan = (torch.cumsum(torch.exp(-kept) * delta * self.drive(x).flip(1), 1) * torch.exp(kept)).flip(1)
        y = torch.cat([torch.stack(states, 1), scan.clamp(-4.0, 4.0)], -1)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        inside = torch.arange(t, device=series.device) < lengths[:, None]
        weights = torch.softmax(self.out(self.dropout(y)).squeeze(-1).masked_fill(~inside, float("-inf")), 1)
        pooled = (weights[:, :, None] * y).sum(1)
        last = y.gather(1, (lengths - 1)[:, None, None].expand(-1, 1, y.shape[-1])).squeeze(1)
        return {"loss": (pooled - last).pow(2).mean(), "pooled": pooled, "last": last}


class Experts(nn.Module):
    """A recommender: embeddings, one round over a graph's edges, and the two best of four experts."""

    def __init__(self, users: int = 200, items: int = 60, width: int = 20) -> None:
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.message, self.self_loop = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.dense = nn.Linear(3, width)
        self.gate = nn.Linear(2 * width, 4, bias=False)
        self.up = nn.Parameter(torch.ones(4, 2 * width, 33))
        self.down = nn.Parameter(torch.ones(4, 33, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, user: Tensor, history: Tensor, edges: Tensor, features: Tensor) -> Drawn:
        nodes = self.items.weight
        sent = self.message(nodes)[edges[0]]
        degree = torch.zeros(len(nodes), device=user.device, dtype=nodes.dtype).index_add(
            0, edges[1], torch.ones_like(sent[:, 0])
        )
        got = torch.zeros_like(nodes).index_add(0, edges[1], sent) / degree.clamp(min=1.0)[:, None]
        nodes = self.norm(nodes + F.gelu(self.self_loop(nodes) + got))
        there = (history != 0).to(nodes.dtype)[:, :, None]
        taste = (F.embedding(history, nodes) * there).sum(1) + self.items(history).amax(1)
        x = torch.cat([self.users(user) + self.dense(features), taste], -1)
        values, chosen = torch.softmax(self.gate(x), -1).topk(2, -1)
        gates = torch.zeros(len(x), 4, device=x.device, dtype=x.dtype).scatter(1, chosen, values)
        gates = gates / gates.sum(-1, keepdim=True)
        inner = F.silu(torch.einsum("bi,eio->beo", x, self.up)).clamp(max=1.5)
        y = (torch.einsum("beo,eow->bew", self.dropout(inner), self.down) * gates[:, :, None]).sum(1)
        scores = y @ y.t() / y.shape[-1] ** 0.5
        return {"loss": F.softplus(scores).mean() + gates.mean(0).pow(2).sum(), "scores": scores, "taste": taste}


def _inputs(name: str, generator: torch.Generator) -> dict[str, Tensor]:
    """One draw of a model's inputs, by name."""

    def whole(high: int, *shape: int, low: int = 0) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    if name == "decoder":
        tokens = whole(97, 3, 18)
        tokens[0, -2:] = 0
        return {"tokens": tokens, "labels": whole(97, 3, 18)}
    if name == "unet":
        return {"image": torch.randn(2, 3, 16, 16, generator=generator), "labels": whole(5, 2, 16, 16)}
    if name == "recurrent":
        return {"series": torch.randn(4, 9, 7, generator=generator), "lengths": whole(10, 4, low=3)}
    drawn = {"user": whole(200, 20), "history": whole(60, 20, 6), "edges": whole(60, 2, 150)}
    return drawn | {"features": torch.randn(20, 3, generator=generator)}


CLASSES: dict[str, Callable[[], nn.Module]] = {
    "decoder": Decoder,
    "unet": UNet,
    "recurrent": Recurrent,
    "experts": Experts,
}


def build(name: str = "decoder", draw: int = 0) -> tuple[nn.Module, tuple[()], Drawn]:
    """A model and its inputs; another ``draw`` gives other inputs for the same weights."""
    return _drawn(CLASSES[name](), seed=11), (), _inputs(name, torch.Generator().manual_seed(1000 + draw))
