"""Models for ``blind_localization.py``, and the backend that compiles them with a fault.

The models are a mixer, graph attention, a recurrent cell, a U-Net, Swin, Llama, a spectral one, one with dropout,
checkpoints and operations in place, and one whose graph breaks. Sizes are small and differ from one another, so that a
fault of some shapes has its own. All that an initialization leaves constant is drawn. Each gives a loss and what it
predicts.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from blind_localization_kinds import KINDS, Call, base
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional as F
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

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


class Spectral(nn.Module):
    """Two layers that multiply by complex weights between a transform and its inverse."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.lift, self.out = nn.Conv2d(2, width, 1), nn.Conv2d(width, 1, 1)
        self.parts = nn.Parameter(torch.ones(2, 2, width, width, 5))
        self.skip = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))

    def forward(self, x: Tensor, y: Tensor) -> Named:
        x = self.lift(x)
        for skip, (real, imaginary) in zip(self.skip, self.parts, strict=True):
            f = torch.fft.rfft2(x, norm="ortho")
            low = torch.einsum("bixy,ioy->boxy", f[..., :5], torch.complex(real, imaginary))
            back = torch.fft.irfft2(torch.cat([low, f[..., 5:]], -1), s=x.shape[-2:], norm="ortho")
            x = F.gelu(back + skip(x))
        out = self.out(x)
        return {"loss": (out - y).pow(2).mean(), "out": out}


class Dropped(nn.Module):
    """Dropout, a checkpoint, batch statistics, operations in place, and an output that is another's view."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.batch, self.dropout, self.head = nn.BatchNorm1d(width), nn.Dropout(0.2), nn.Linear(width, 5)

    def _block(self, x: Tensor) -> Tensor:
        return F.gelu(self.layers[0](x))

    def forward(self, x: Tensor, label: Tensor) -> Named:
        h = checkpoint(self._block, x, use_reentrant=False)
        h = self.dropout(h.mul_(1.5).add_(x))
        h = h + F.relu(self.batch(self.layers[1](h)), inplace=True)
        out = self.head(self.dropout(F.gelu(self.layers[2](h))))
        return {"loss": F.cross_entropy(out, label), "out": out, "flat": out.view(-1)}


class Broken(nn.Module):
    """Three graphs."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(width, width) for _ in range(3)), nn.Linear(width, 5)

    def forward(self, x: Tensor, label: Tensor) -> Named:
        h = F.gelu(self.layers[0](x))
        torch._dynamo.graph_break()
        h = 5 * torch.softmax(self.layers[1](h), -1)
        torch._dynamo.graph_break()
        out = self.head(F.gelu(self.layers[2](h)))
        return {"loss": F.cross_entropy(out, label), "out": out}


CLASSES: dict[str, Callable[[], nn.Module]] = {
    "mixer": Mixer,
    "graph": GraphAttention,
    "recurrent": Recurrent,
    "unet": UNet,
    "swin": Swin,
    "llama": Llama,
    "spectral": Spectral,
    "dropped": Dropped,
    "broken": Broken,
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
    if name == "spectral":
        return real(2, 2, 10, 14), real(2, 1, 10, 14)
    if name in ("dropped", "broken"):
        return real(12, 20), whole(5, 12)
    label = whole(83, 2, 13)
    label[:, :4] = -100
    return whole(83, 2, 13, low=1), label


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


@dataclass
class Site:
    """Where a fault struck: a node of a graph (``g0.forward``), and what else it needs in that graph."""

    graph: str
    node: str
    target: str
    others: list[str] = field(default_factory=list)
    own: float = 0.0


def _signature(call: Call) -> str:
    """The operation, and of each argument the sizes and strides or the value."""

    def told(x: Any) -> Any:
        return (tuple(x.shape), x.stride()) if isinstance(x, Tensor) else str(x)

    return f"{call.node.target} {tree_map(told, (call.args, call.kwargs))}"


def _own(right: Any, wrong: Any) -> float:
    """The largest share by which a tensor is off, in units of its dtype's eps; infinite for whole numbers."""
    pairs = zip(right, wrong, strict=True) if isinstance(right, (tuple, list)) else [(right, wrong)]
    found = [0.0]
    for a, b in pairs:
        if isinstance(a, Tensor) and (a.is_floating_point() or a.is_complex()):
            error = float((a - b).abs().double().norm()) / (float(a.abs().double().norm()) or 1.0)
            found.append(error / torch.finfo(a.dtype).eps if error == error else math.inf)
        elif isinstance(a, Tensor) and not torch.equal(a, b):
            found.append(math.inf)
    return max(found)


def _reordered(call: Call) -> Any:
    """The value by sums in another order."""
    name, right = base(call.node), call.right
    if name in ("mm", "addmm", "bmm"):
        a, b = call.args[-2:]
        made = a.flip(-1) @ b.flip(-2)
        return torch.empty_like(right).copy_(made + call.args[0] if name == "addmm" else made)
    if name in ("sum", "mean") and len(call.args) > 1 and call.args[1] and call.args[0].is_floating_point():
        return torch.empty_like(right).copy_(call.replaced(0, call.args[0].flip(call.args[1])))
    if name == "_softmax":
        return torch.empty_like(right).copy_(call.replaced(0, call.args[0].flip(call.args[1])).flip(call.args[1]))
    return right


class Faulty(fx.Interpreter):
    """Executes a graph by a compiler that has the fault."""

    def __init__(self, gm: fx.GraphModule, backend: "Backend", graph: str) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.backend, self.name = backend, graph

    def run_node(self, n: fx.Node) -> Any:
        right = super().run_node(n)
        if n.op not in ("call_function", "placeholder") or not self.backend.kind:
            return right
        args, kwargs = self.fetch_args_kwargs_from_env(n) if n.op == "call_function" else ((), {})
        call = Call(n, args, kwargs, right, self.env)
        if self.backend.kind == "reordered":
            return _reordered(call)
        if self.backend.signature and _signature(call) != self.backend.signature:
            return right
        wrong = KINDS[self.backend.kind](call)
        own = 0.0 if wrong is None else _own(right, wrong)
        if not own:
            return right
        if self.backend.recording:
            self.backend.seen[_signature(call)] = None
            others = [str(other) for other in call.others]
            self.backend.sites.append(Site(self.name, str(n), str(n.target), others, own))
        return tree_map(lambda a, b: torch.empty_like(a).copy_(b) if isinstance(a, Tensor) else a, right, wrong)


class Backend:
    """A backend for ``torch.compile``; without a kind it is right."""

    def __init__(self, kind: str = "", signature: str = "") -> None:
        self.kind, self.signature, self.recording, self.graphs = kind, signature, False, 0
        self.seen: dict[str, None] = {}
        self.sites: list[Site] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
        number, self.graphs = self.graphs, self.graphs + 1

        def compiler(half: str) -> Callable[..., Any]:
            def compiled(graph: fx.GraphModule, _: Sequence[Tensor]) -> Callable[..., Any]:
                calls = sum(n.op == "call_function" for n in graph.graph.nodes)
                if self.kind == "refuses_small" and calls < 12 and not self.recording:
                    raise NotImplementedError(f"a graph of {calls} calls is too small")
                return make_boxed_func(Faulty(graph, self, f"g{number}.{half}").run)

            return compiled

        made = aot_autograd(
            fw_compiler=compiler("forward"),
            bw_compiler=compiler("backward"),
            partition_fn=min_cut_rematerialization_partition,
        )
        result: Callable[..., Any] = made(gm, example_inputs)
        return result
