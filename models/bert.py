"""BERT: the architecture of bert-base-multilingual-cased with random weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import nn

from inductor_debug.models.random_state import input_generator


def build(
    batch_size: int,
    sequence_length: int,
    vocabulary: int = 119_547,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    intermediate: int = 3072,
    positions: int = 512,
    dropout: float = 0.1,
) -> tuple[nn.Module, tuple[()], dict[str, torch.Tensor]]:
    """transformers' ``BertModel`` and one batch. The defaults make 177,853,440 parameters.

    Args:
        batch_size, sequence_length: of ``input_ids`` and ``attention_mask``, both (batch, sequence) in int64.
        vocabulary: number of tokens.
        layers, width, heads, intermediate: the encoder's sizes.
        positions: longest sequence the model can read; grows to ``sequence_length`` where that is longer.
        dropout: probability for hidden states and for attention, in training.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=max(positions, sequence_length),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with _initialized_once():
        model = BertModel(config)
    generator = input_generator()
    tokens = torch.randint(vocabulary, (batch_size, sequence_length), generator=generator)
    return model, (), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


@contextmanager
def _initialized_once() -> Iterator[None]:
    """Skip torch's own random weights of linear and embedding layers: transformers draws BERT's again at once.

    Half of the time that building BERT takes. Only for a model whose every such layer transformers initializes.
    """
    with (
        mock.patch.object(nn.Linear, "reset_parameters", lambda self: None),
        mock.patch.object(nn.Embedding, "reset_parameters", lambda self: None),
    ):
        yield
