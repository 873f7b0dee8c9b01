"""What initial values leave untested: constant weights and masks of ones are drawn anew.

Of BERT's 199 tensors 123 hold one value throughout, of ResNet-18's 102 tensors 80. Code that drops a bias, adds it
twice or ignores a mask computes the same numbers then.

- *Parameters*: trainable, floating, finite, of more than one element, constant or next to it. Zeros become normal, of
  the size of transformers' initializers; another value varies by 10 %; below 0.01 it is of order 1, for a layer scale
  of 1e-6 keeps its whole branch below every noise floor.
- *Running statistics* of norms, where they are initial, are those of passes over the inputs, in their order and in
  others. Drawn ones would leave MobileNetV3 an output that hardly depends on its inputs.
- *Inputs*: a padding mask of ones becomes ragged, token types become both.

No other buffer is touched: not a pruning mask, not a quantization scale, no integer. A model that loaded weights as it
was built is a checkpoint's, and stays as it is.
"""

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy
import torch
from torch import nn

from inductor_debug.models.case import Case, Exercised
from inductor_debug.models.errors import is_out_of_memory
from inductor_debug.models.huggingface_input_maker import runs
from inductor_debug.models.nested import map_tensors
from inductor_debug.models.random_state import own_numbers
from inductor_debug.models.read_weights import FLOATS, floating_weights

log = logging.getLogger(__name__)

DEVIATION = 0.02
"""Standard deviation of what was zero. With 0.1 biases outweigh GPT-2's embeddings: the share of its output that
changes with the inputs falls to 0.09, from 0.58."""

SPREAD = 0.1
"""Standard deviation of what was another constant, over the constant."""

SMALL = 0.01
"""A constant below it is drawn from ``±U(0.1, 1)``."""

NEXT = 1e-4
"""So near to one another values count as one: torchvision's ViT draws biases from N(0, 1e-6)."""

PASSES = 8
"""Passes that running statistics are of, so that there are as many values a channel at least. After one pass
EfficientNet's other inputs are far from its statistics: the output changes by 9.6 times its size, after 8 by 0.6."""

_USE = 2**31
"""Of the case's seed, see :func:`models.random_state.own_numbers`; smaller ones are the loss's."""


def exercise(case: Case, seed: int, *, inputs: bool) -> tuple[dict[str, Any], Exercised]:
    """Draw the constant weights of a case's module anew, in place, and its masks.

    Args:
        case: on the CPU in the dtype that it was made in, with random weights; else it is left as found.
        seed: of what is drawn.
        inputs: whether the keyword inputs are ours to change.

    Returns:
        The case's ``kwargs``, with other masks and token types where the module runs with them, and what was drawn.
    """
    numbers = own_numbers(seed, _USE)
    levels = {parameter: _level(parameter) for parameter in case.module.parameters()}
    moved = {parameter: level for parameter, level in levels.items() if level is not None}
    with torch.no_grad():
        for parameter, level in moved.items():
            parameter.copy_(torch.from_numpy(_drawn(tuple(parameter.shape), level, numbers)))
    varied = _varied_inputs(case, numbers) if inputs else {}
    if varied and not runs(case.module, case.kwargs | varied):
        varied = {}
    kwargs, norms = case.kwargs | varied, _initial_norms(case.module)
    measured = [norm for norm in norms if norm.keep()] if norms and _passes(case, norms, kwargs, numbers) else []
    return kwargs, Exercised(len(moved), len(measured), tuple(varied))


@contextmanager
def loads_noted() -> Iterator[list[str]]:
    """Inside, where a module loads a state, its class's name is put into the list that is yielded."""
    original, loaded = nn.Module.load_state_dict, list[str]()

    def load_state_dict(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        loaded.append(type(self).__name__)
        return original(self, *args, **kwargs)

    with mock.patch.object(nn.Module, "load_state_dict", load_state_dict):
        yield loaded


def is_pretrained(module: nn.Module) -> bool:
    """Whether a part of it has the name of a checkpoint: transformers loads weights in a way of its own."""
    return any(getattr(getattr(part, "config", None), "name_or_path", "") for part in module.modules())


def constant_weights(module: nn.Module) -> tuple[list[str], int]:
    """Names of the floating parameters and buffers that hold one value throughout, and how many there are in all.

    Those of one element are not counted.
    """
    weights = floating_weights(module)
    return [name for name, tensor in weights.items() if is_constant(tensor.detach())], len(weights)


def is_constant(tensor: torch.Tensor, apart: float = 0.0) -> bool:
    """Whether a strided tensor of more than one element holds one value throughout.

    Args:
        tensor: floating or of whole numbers.
        apart: how far from the first element others may be.
    """
    if tensor.numel() < 2:
        return False
    first = tensor[(0,) * tensor.dim()]
    few = tensor[(slice(2),) * tensor.dim()]  # most tensors differ there, and large ones are not read
    return all(bool(((part == first) | ((part - first).abs() <= apart)).all()) for part in (few, tensor))


def _level(parameter: nn.Parameter) -> float | None:
    """The value that a trainable parameter holds throughout, 0 where it is next to that; None where it varies."""
    plain = type(parameter) is nn.Parameter and parameter.layout == torch.strided and not parameter.is_meta
    if not plain or parameter.dtype not in FLOATS or not parameter.requires_grad:
        return None
    values = parameter.detach()
    if not is_constant(values, NEXT) or not values.flatten()[0].isfinite():
        return None
    return values.flatten()[0].item() if is_constant(values) else round(values.double().mean().item(), 3)


def _drawn(shape: tuple[int, ...], value: float, numbers: numpy.random.Generator) -> numpy.ndarray:
    normal = numbers.standard_normal(shape, dtype=numpy.float32)
    if value == 0:
        return normal * numpy.float32(DEVIATION)
    if abs(value) < SMALL:
        return numpy.copysign(numbers.uniform(0.1, 1.0, shape).astype(numpy.float32), numpy.float32(value))
    return numpy.float32(value) * (1 + numpy.float32(SPREAD) * normal)


def _varied_inputs(case: Case, numbers: numpy.random.Generator) -> dict[str, Any]:
    """A padding mask that ends at another place in each row, and token types of both kinds."""
    found: dict[str, Any] = {}
    module, kwargs = case.module, case.kwargs
    mask = kwargs.get("attention_mask")
    if isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[1] > 1 and bool((mask == 1).all()):
        length = mask.shape[1]
        ends = torch.from_numpy(numbers.integers(length // 2 + length % 2, length, mask.shape[0]))
        found["attention_mask"] = (torch.arange(length) < ends[:, None]).to(mask.dtype)
    tokens, types = kwargs.get("input_ids"), getattr(getattr(module, "config", None), "type_vocab_size", 0)
    takes = "token_type_ids" in inspect.signature(module.forward).parameters and "token_type_ids" not in kwargs
    if isinstance(tokens, torch.Tensor) and takes and isinstance(types, int) and types > 1:
        found["token_type_ids"] = torch.from_numpy(numbers.integers(0, types, tuple(tokens.shape)))
    return found


class _Norm:
    """A module with running statistics, which become those of what it is given."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.count = module, 0
        buffers = dict(module.named_buffers(recurse=False))
        self.running = buffers["running_mean"], buffers["running_var"]
        self.mean = torch.zeros_like(self.running[0], dtype=torch.float64)
        self.squares = torch.zeros_like(self.mean)

    def keep(self) -> bool:
        """Give the module the statistics of all that it was given; False where it was not run."""
        if self.count:
            variance = self.squares / max(self.count - 1, 1)
            self.running[0].copy_(self.mean)
            self.running[1].copy_(torch.where(variance > 0, variance, torch.ones_like(variance)))
        return bool(self.count)

    def take_in(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        """Before its forward: the statistics are those of all inputs so far (Chan, Golub and LeVeque, 1979)."""
        given = args[0] if args else None
        if not isinstance(given, torch.Tensor) or given.dim() < 2 or given.shape[1] != self.mean.shape[0]:
            return
        values = given.detach().double().transpose(0, 1).flatten(1)
        count, mean = values.shape[1], values.mean(1)
        total, apart = self.count + count, mean - self.mean
        self.squares += (values - mean[:, None]).square().sum(1) + apart.square() * (self.count * count / total)
        self.mean += apart * (count / total)
        self.count = total
        self.keep()


def _initial_norms(module: nn.Module) -> list[_Norm]:
    """Modules with a running mean of zeros and a running variance of ones, one of each a channel."""
    found = []
    for part in module.modules():
        buffers = dict(part.named_buffers(recurse=False))
        mean, variance = buffers.get("running_mean"), buffers.get("running_var")
        if mean is None or variance is None or mean.dim() != 1 or mean.shape != variance.shape:
            continue
        if mean.dtype in FLOATS and bool((mean == 0).all()) and bool((variance == 1).all()):
            found.append(_Norm(part))
    return found


def _passes(case: Case, norms: list[_Norm], kwargs: dict[str, Any], numbers: numpy.random.Generator) -> bool:
    """Run the module in evaluation mode, norms at their inputs' statistics; False where it raises.

    The case is left as found. The first pass has the inputs as they are, later ones the same numbers in another order.
    """
    with case.preserved(), _evaluation(case.module), torch.no_grad():
        handles = [norm.module.register_forward_pre_hook(norm.take_in) for norm in norms]
        try:
            for number in range(PASSES):
                inputs = case.args, kwargs
                args, named = map_tensors(partial(_shuffled, numbers=numbers), inputs) if number else inputs
                case.module(*args, **named)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            log.info("exercise: the model's forward raised %s: %s", type(error).__name__, error)
            return False
        finally:
            for handle in handles:
                handle.remove()
    return True


def _shuffled(tensor: torch.Tensor, numbers: numpy.random.Generator) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.layout != torch.strided or tensor.numel() < 2:
        return tensor
    order = torch.from_numpy(numbers.permutation(tensor.numel()))
    return tensor.detach().flatten()[order].reshape(tensor.shape)


@contextmanager
def _evaluation(module: nn.Module) -> Iterator[None]:
    """Inside, every part of the module is in evaluation mode."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
