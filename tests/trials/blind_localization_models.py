"""Models for ``blind_localization.py``: a mixer, graph attention, a recurrent cell, a U-Net, Swin and Llama.

Sizes are small and differ from one another, so that a fault of some shapes has its own. All that an initialization
leaves constant is drawn. Each gives a loss and what it predicts.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inductor_debug.models.compat import prepare_torchvision

Named = dict[str, Tensor]


class Mixer(nn.Module):
    """Patches by a convolution of stride two, mixed over 25 places and over 22 channels."""

    def __init__(self, width: int = 22, places: int = 25, layers: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=1e-3) for _ in range(2 * layers))
        self.across = nn.ModuleList(nn.Linear(places, places) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 40) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(40, width) for _ in range(layers))
        self.head = nn.Linear(width, 7)

    def forward(self, image: Tensor, label: Tensor) -> Named:
        x = self.stem(image).flatten(2).transpose(1, 2)
        for i, across in enumerate(self.across):
            x = x + across(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.down[i](F.gelu(self.up[i](self.norms[2 * i + 1](x))))
        logits = self.head(x.mean(1))
        return {"loss": F.cross_entropy(logits, label), "logits": logits}


class GraphAttention(nn.Module):
    """Edges weigh what they carry by a softmax over each target's edges, after an embedding of 6000 rows."""

    def __init__(self, rows: int = 6000, width: int = 16, heads: int = 3, layers: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(rows, width)
        self.send = nn.ModuleList(nn.Linear(width, heads * 9) for _ in range(layers))
        self.score = nn.ParameterList(nn.Parameter(torch.ones(2, heads, 9)) for _ in range(layers))
        self.join = nn.ModuleList(nn.Linear(heads * 9, width) for _ in range(layers))
        self.pair = nn.Parameter(torch.ones(heads, width, width))

    def forward(self, ids: Tensor, edges: Tensor, target: Tensor) -> Named:
        x = self.table(ids)
        source, sink = edges[0], edges[1]
        for send, score, join in zip(self.send, self.score, self.join, strict=True):
            sent = send(x).view(len(ids), self.heads, 9)
            toward, away = (sent * score[0]).sum(-1), (sent * score[1]).sum(-1)
            weight = torch.exp(4 * F.leaky_relu(toward[source] + away[sink], 0.2))
            total = weight.new_zeros(len(ids), self.heads).index_add(0, sink, weight)
            share = weight / (total[sink] + 1e-3)
            got = torch.zeros_like(sent).index_add(0, sink, sent[source] * share[:, :, None])
            x = x + torch.tanh(join(got.flatten(1)))
        made = torch.bmm(x.expand(self.heads, -1, -1), self.pair)
        close = torch.bmm(made, x.t().expand(self.heads, -1, -1)).amax(0)
        return {"loss": F.softplus(close * target).mean(), "nodes": x, "close": close}


class Recurrent(nn.Module):
    """A gated cell of 11 steps; then sums over time, a third power, and the state at each sequence's end."""

    def __init__(self, features: int = 5, width: int = 18) -> None:
        super().__init__()
        self.read, self.turn, self.own = (
            nn.Linear(features, 3 * width),
            nn.Linear(width, 2 * width),
            nn.Linear(width, width),
        )
        self.rate, self.scale = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.first, self.last = nn.Linear(width, 21), nn.Linear(21, 3)

    def forward(self, series: Tensor, ends: Tensor) -> Named:
        read = self.read(series)
        state, states = series.new_zeros(len(series), self.rate.shape[0]), []
        for i in range(series.shape[1]):
            z, r, n = read[:, i].chunk(3, -1)
            turn_z, turn_r = self.turn(state).chunk(2, -1)
            z, r = torch.sigmoid(2 * z + turn_z), torch.sigmoid(2 * r + turn_r)
            state = (1 - z) * torch.tanh(n + r * self.own(state)) + z * state
            states.append(state)
        y = torch.stack(states, 1)
        run = torch.cumsum(y * self.rate, 1)
        y = y + 0.3 * run - 0.7 * run / (1.5 + run.pow(2).mean(-1, keepdim=True)).sqrt() + 0.05 * y.pow(3)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        at = y.gather(1, ends[:, None, None].expand(-1, 1, y.shape[-1])).squeeze(1)
        out = self.last(torch.relu(self.first(at)))
        return {"loss": out.pow(2).mean() + y.std(1).mean(), "out": out}


class UNet(nn.Module):
    """Down by a stride and by a mean with padding, depthwise and dilated in between, and up by interpolation."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(2, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.batch, self.group = nn.BatchNorm2d(width), nn.GroupNorm(3, 2 * width)
        self.deep = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.wide = nn.Conv2d(2 * width, 2 * width, 3, padding=2, dilation=2)
        self.back = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.gate, self.head = nn.Linear(2 * width, 2 * width), nn.Conv2d(2 * width, 4, 1)

    def forward(self, image: Tensor, label: Tensor) -> Named:
        a = torch.relu(self.batch(self.stem(image)))
        b = torch.relu(self.group(self.down(a)))
        c = F.avg_pool2d(b, 3, stride=2, padding=1, count_include_pad=False)
        c = self.wide(torch.relu(self.deep(c)))
        c = c * torch.sigmoid(self.gate(c.mean((2, 3))))[:, :, None, None]
        d = F.interpolate(c, size=b.shape[-2:], mode="bilinear", align_corners=False) + b
        logits = self.head(torch.cat([self.back(d), a], 1))
        return {"loss": F.cross_entropy(logits, label), "logits": logits}


class Swin(nn.Module):
    """Torchvision's, of two stages with windows of 4, shifted in every second block."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.models.swin_transformer import SwinTransformer

        self.net = SwinTransformer([2, 2], 12, [2, 1], [3, 2], [4, 4], 2.0, stochastic_depth_prob=0.0, num_classes=6)

    def forward(self, image: Tensor, label: Tensor) -> Named:
        logits = self.net(image)
        return {"loss": F.cross_entropy(logits, label), "logits": logits}


class Llama(nn.Module):
    """Transformers', of two layers, three heads on one pair of keys and values, and 12 numbers a head."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.net = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=83, hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=3,
                num_key_value_heads=1, max_position_embeddings=32, use_cache=False, pad_token_id=0,
            )
        )  # fmt: skip

    def forward(self, tokens: Tensor, label: Tensor) -> Named:
        logits = self.net(input_ids=tokens, use_cache=False).logits
        return {"loss": F.cross_entropy(logits.flatten(0, 1).float(), label.flatten()), "logits": logits}


CLASSES: dict[str, Callable[[], nn.Module]] = {
    "mixer": Mixer,
    "graph": GraphAttention,
    "recurrent": Recurrent,
    "unet": UNet,
    "swin": Swin,
    "llama": Llama,
}


def _inputs(name: str, draw: torch.Generator) -> tuple[Tensor, ...]:
    def whole(high: int, *sizes: int, low: int = 0) -> Tensor:
        return torch.randint(low, high, sizes, generator=draw)

    def real(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=draw)

    if name == "mixer":
        return real(3, 3, 10, 10), whole(7, 3)
    if name == "graph":
        return whole(6000, 30), whole(30, 2, 110), real(30, 30).sign()
    if name == "recurrent":
        return real(4, 11, 5), whole(11, 4, low=3)
    if name == "unet":
        return real(2, 2, 14, 14), whole(4, 2, 14, 14)
    if name == "swin":
        return real(2, 3, 16, 16), whole(6, 2)
    return whole(83, 2, 13, low=1), whole(83, 2, 13)


def build(name: str, seed: int = 3) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A model with everything drawn, and its inputs."""
    prepare_torchvision()
    torch.manual_seed(seed)
    module, draw = CLASSES[name](), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if not tensor.is_floating_point() or "inv_freq" in key:
                continue
            noise = torch.randn(tensor.shape, generator=draw)
            if key.endswith("running_var"):
                tensor.copy_(0.5 + noise.abs())
            elif tensor.dim() < 2:
                scale = key.endswith(("weight", "scale", "rate"))
                tensor.copy_(0.2 * noise + float(scale))
            else:
                tensor.copy_(noise / (tensor[0].numel() if tensor.dim() != 3 else tensor.shape[-1]) ** 0.5)
    return module, _inputs(name, draw)
