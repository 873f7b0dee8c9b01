"""A selective state-space language model in the Mamba style.

The block, its parameters and their initial values follow Gu and Dao, "Mamba: Linear-Time Sequence Modeling with
Selective State Spaces" (2023), sections 3.2 and 3.4. The segment sum, which passes states from chunk to chunk, follows
Dao and Gu, "Transformers are SSMs" (2024), listing 1.

Shape suffixes::

    B  batch                 C  chunks                     V  vocabulary
    S  sequence              L  positions in a chunk       R  rank of the projection to delta
    M  model width           D  inner width (2 M)          N  state size of one channel

``x_BSD`` is a tensor of shape (batch, sequence, inner width).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from inductor_debug.models.errors import ConfigurationError, wrong_value
from inductor_debug.models.random_state import input_generator


@dataclass(frozen=True)
class SSMConfig:
    """Sizes of a :class:`SelectiveStateSpaceModel`. The defaults make 27.0 million parameters.

    Attributes:
        vocabulary: tokens; 0 for a model that reads continuous inputs of shape (batch, sequence, width).
        width: of the residual stream (M).
        layers: number of blocks.
        state: state size of one channel (N).
        expand: inner width over width (D / M).
        convolution: taps of the causal depthwise convolution.
        chunk: positions that one chunk of the scan covers (L), a power of two. It changes the cost, not the result.
    """

    vocabulary: int = 16_384
    width: int = 512
    layers: int = 11
    state: int = 16
    expand: int = 2
    convolution: int = 4
    chunk: int = 16

    def __post_init__(self) -> None:
        for name in ("width", "layers", "state", "expand", "convolution", "chunk"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"model.build.{name}: got {getattr(self, name)}; valid: 1 or more.")
        if self.vocabulary < 0:
            raise ConfigurationError(f"model.build.vocabulary: got {self.vocabulary}; valid: 0 or more.")
        if self.chunk & (self.chunk - 1):
            near = 2 ** round(math.log2(self.chunk))
            raise wrong_value("model.build.chunk", self.chunk, "a power of two", str(near))


def build(
    batch_size: int,
    sequence_length: int,
    vocabulary: int = SSMConfig.vocabulary,
    width: int = SSMConfig.width,
    layers: int = SSMConfig.layers,
    state: int = SSMConfig.state,
    expand: int = SSMConfig.expand,
    convolution: int = SSMConfig.convolution,
    chunk: int = SSMConfig.chunk,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model with random weights and one batch.

    The input is (batch, sequence) tokens in int64 or, with ``vocabulary=0``, (batch, sequence, width) in float32.

    Args:
        batch_size, sequence_length: sizes of the input.
        vocabulary, width, layers, state, expand, convolution, chunk: as in :class:`SSMConfig`.
    """
    config = SSMConfig(vocabulary, width, layers, state, expand, convolution, chunk)
    model = SelectiveStateSpaceModel(config)
    generator = input_generator()
    if vocabulary:
        return model, (torch.randint(vocabulary, (batch_size, sequence_length), generator=generator),)
    return model, (torch.randn(batch_size, sequence_length, width, generator=generator),)


class SelectiveStateSpaceModel(nn.Module):
    """Embedding, blocks, norm and an output projection that shares the embedding's weight."""

    def __init__(self, config: SSMConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width) if config.vocabulary else nn.Identity()
        self.blocks = nn.ModuleList(SelectiveBlock(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary or config.width, bias=False)
        if isinstance(self.embedding, nn.Embedding):
            nn.init.normal_(self.embedding.weight, std=0.02)
            self.head.weight = self.embedding.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (batch, sequence, vocabulary); (batch, sequence, width) for continuous inputs."""
        x_BSM = self.embedding(inputs)
        for block in self.blocks:
            x_BSM = block(x_BSM)
        return self.head(self.norm(x_BSM))


class SelectiveBlock(nn.Module):
    """Norm, projection to a signal and a gate, causal convolution, selective scan, gating, projection back."""

    def __init__(self, config: SSMConfig) -> None:
        super().__init__()
        inner, rank = config.expand * config.width, math.ceil(config.width / 16)
        self.inner, self.rank, self.state, self.chunk = inner, rank, config.state, config.chunk
        self.norm = RMSNorm(config.width)
        self.in_projection = nn.Linear(config.width, 2 * inner, bias=False)
        self.convolution = nn.Conv1d(
            inner, inner, config.convolution, groups=inner, padding=config.convolution - 1, bias=True
        )
        self.selection = nn.Linear(inner, rank + 2 * config.state, bias=False)
        self.delta_projection = nn.Linear(rank, inner, bias=True)
        self.log_decay_DN = nn.Parameter(torch.arange(1.0, config.state + 1).log().repeat(inner, 1))
        self.skip_D = nn.Parameter(torch.ones(inner))
        self.out_projection = nn.Linear(inner, config.width, bias=False)
        self._initialize(config.layers)

    def forward(self, x_BSM: Tensor) -> Tensor:
        """The block's output added to its input, (batch, sequence, width)."""
        signal_BSD, gate_BSD = self.in_projection(self.norm(x_BSM)).chunk(2, dim=-1)
        length = signal_BSD.shape[1]
        signal_BSD = self.convolution(signal_BSD.transpose(1, 2))[..., :length].transpose(1, 2)
        signal_BSD = functional.silu(signal_BSD)
        rank_BSR, in_BSN, out_BSN = self.selection(signal_BSD).split([self.rank, self.state, self.state], dim=-1)
        delta_BSD = functional.softplus(self.delta_projection(rank_BSR))
        y_BSD = selective_scan(signal_BSD, delta_BSD, -self.log_decay_DN.exp(), in_BSN, out_BSN, self.chunk)
        y_BSD = (y_BSD + self.skip_D * signal_BSD) * functional.silu(gate_BSD)
        return x_BSM + self.out_projection(y_BSD)

    def _initialize(self, layers: int) -> None:
        """Mamba's initial values: softplus(bias) log-uniform in [0.001, 0.1]; branches shrink with depth."""
        nn.init.uniform_(self.delta_projection.weight, -(self.rank**-0.5), self.rank**-0.5)
        delta = torch.exp(torch.rand(self.inner) * math.log(100.0) + math.log(0.001))
        with torch.no_grad():
            self.delta_projection.bias.copy_(delta + torch.log(-torch.expm1(-delta)))  # softplus's inverse
            self.out_projection.weight.div_(math.sqrt(layers))


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + 1e-5), scaled by a weight; computed in float32 or better."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normal = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return normal.to(x.dtype) * self.weight


def selective_scan(
    x_BSD: Tensor, delta_BSD: Tensor, decay_DN: Tensor, in_BSN: Tensor, out_BSN: Tensor, chunk: int = 16
) -> Tensor:
    """y_t = Σ_n out_t · h_t with h_t = exp(delta_t · decay) · h_{t-1} + delta_t · in_t · x_t and h_{-1} = 0.

    The sequence is cut into chunks of ``chunk`` positions. Within a chunk an associative scan takes log2(chunk)
    steps; a segment sum over the chunks carries the states across. The number of operations does not depend on
    the length. Every exponent is at most 0 where ``decay_DN`` is, so nothing overflows, and no two large sums
    are subtracted. Computed in float32 or better whatever the inputs' dtype.

    Args:
        x_BSD, delta_BSD: signal and positive step sizes.
        decay_DN: negative decay rates.
        in_BSN, out_BSN: input and output projections of the state (the paper's B and C).
        chunk: a power of two. Extra memory is B · (S / chunk)² · D · N elements.

    Returns:
        y_BSD in x's dtype.
    """
    wide = torch.promote_types(x_BSD.dtype, torch.float32)
    length = x_BSD.shape[1]
    padding = -length % chunk
    # A padded position has delta 0: it neither decays the state nor adds to it.
    x_BCLD, delta_BCLD, in_BCLN, out_BCLN = (
        functional.pad(value.to(wide), (0, 0, 0, padding)).unflatten(1, (-1, chunk))
        for value in (x_BSD, delta_BSD, in_BSN, out_BSN)
    )
    exponent_BCLDN = delta_BCLD.unsqueeze(-1) * decay_DN.to(wide)
    update_BCLDN = (delta_BCLD * x_BCLD).unsqueeze(-1) * in_BCLN.unsqueeze(-2)
    state_BCLDN, decayed_BCLDN = _scan_chunks(exponent_BCLDN.exp(), update_BCLDN, chunk)
    entering_BCDN = _entering_states(exponent_BCLDN.sum(2), state_BCLDN[:, :, -1])
    state_BCLDN = state_BCLDN + decayed_BCLDN * entering_BCDN.unsqueeze(2)
    y_BSD = (state_BCLDN * out_BCLN.unsqueeze(-2)).sum(-1).flatten(1, 2)
    return y_BSD[:, :length].to(x_BSD.dtype)


def _scan_chunks(decay_BCLDN: Tensor, update_BCLDN: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
    """States within each chunk from a zero state, and the decay from the chunk's start: Hillis and Steele's scan."""
    shift = 1
    while shift < chunk:
        earlier = (0, 0, 0, 0, shift, 0)  # positions before the chunk's start: update 0, decay 1
        update_BCLDN = update_BCLDN + decay_BCLDN * functional.pad(update_BCLDN[:, :, :-shift], earlier)
        decay_BCLDN = decay_BCLDN * functional.pad(decay_BCLDN[:, :, :-shift], earlier, value=1.0)
        shift *= 2
    return update_BCLDN, decay_BCLDN


def _entering_states(exponent_BCDN: Tensor, last_BCDN: Tensor) -> Tensor:
    """The state that enters each chunk, from each chunk's whole decay (as an exponent) and its last state.

    Entry (c, k) of the segment sum is the exponent's sum over the chunks strictly between k and c, for k < c. It
    is summed directly, not as a difference of two cumulative sums, which would lose digits on long sequences.
    """
    chunks = exponent_BCDN.shape[1]
    before_CC = torch.ones(chunks, chunks, dtype=torch.bool, device=exponent_BCDN.device).tril(-1)[..., None, None]
    # Row c holds chunk c-1's exponent: the chunk that a state of k has to cross last on its way to c.
    crossed_BCDN = functional.pad(exponent_BCDN[:, :-1], (0, 0, 0, 0, 1, 0))
    later_CC = before_CC.squeeze(-1).squeeze(-1).tril(-2)[..., None, None]
    segment_BCCDN = torch.where(later_CC, crossed_BCDN.unsqueeze(2), 0.0).cumsum(1)
    weight_BCCDN = torch.where(before_CC, segment_BCCDN, -torch.inf).exp()
    return (weight_BCCDN * last_BCDN.unsqueeze(1)).sum(2)
