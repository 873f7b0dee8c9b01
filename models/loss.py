"""The loss of a training step: the model's own, or the product of its outputs with fixed random tensors.

A mean square is constant behind a normalization: its gradients are then remainders of what cancels, noise of 23 to 59 %
in bfloat16. ⟨output, R⟩ weighs every element differently, so that each gradient is a sum of what reaches it.
"""

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.nested import named_tensors
from inductor_debug.models.random_state import own_numbers

Projections = dict[tuple[int, tuple[int, ...], torch.device], torch.Tensor]
"""The random tensors drawn so far, by the output's place, its shape and its device."""


def training_loss(output: Any, drawn: Projections) -> torch.Tensor:
    """The model's own loss where it returns one, else ``sum_i <output_i, R_i> / sqrt(n_i)``.

    That is over all real floating outputs, in float32 (float64 where an output is float64). ``R_i`` is drawn from
    N(0, 1) in float32, once, by NumPy from a fixed seed: no mode of torch and no device changes its numbers. So the
    loss moves by the root of the summed mean squares of the outputs' errors, whichever elements they are in.

    Args:
        output: of the forward: tensors of any shape, nested.
        drawn: keeps them from one step to the next.

    Returns:
        A scalar.

    Raises:
        ConfigurationError: no floating output, or none that a gradient can flow from.
    """
    own = own_loss(output)
    if own is not None:
        return own.reshape(())
    tensors = [part for _, tensor in named_tensors(output, "output", objects=False) for part in _strided(tensor)]
    floating = [tensor for tensor in tensors if tensor.is_floating_point()]
    if not any(tensor.requires_grad for tensor in floating):
        complex_ones = sum(tensor.is_complex() for tensor in tensors)
        beside = f" ({complex_ones} complex, of which no loss is made)" if complex_ones else ""
        raise ConfigurationError(
            f"mode=training: got a model with {len(floating)} real floating outputs{beside}, none of which depends on "
            "a parameter or input that requires a gradient.\nTry: mode=inference"
        )
    accumulator = torch.float64 if any(tensor.dtype == torch.float64 for tensor in floating) else torch.float32
    terms = []
    for place, tensor in enumerate(floating):
        key = place, tuple(tensor.shape), tensor.device
        if key not in drawn:
            drawn[key] = _random(place, tensor)
        terms.append((tensor.to(accumulator) * drawn[key]).sum() / max(tensor.numel(), 1) ** 0.5)
    return torch.stack(terms).sum()


def own_loss(output: Any) -> torch.Tensor | None:
    """``output.loss`` or ``output["loss"]`` where that is one element that requires a gradient."""
    own = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    return own if isinstance(own, torch.Tensor) and own.numel() == 1 and own.requires_grad else None


def _random(place: int, like: torch.Tensor) -> torch.Tensor:
    numbers = own_numbers(0, place).standard_normal(tuple(like.shape), dtype=numpy.float32)
    return torch.from_numpy(numbers).to(like.device)


def _strided(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    """The rows of a nested tensor, which torch has hardly any operation for; a sparse one in full."""
    if tensor.is_nested:
        return tensor.unbind()
    return [tensor if tensor.layout == torch.strided else tensor.to_dense()]
