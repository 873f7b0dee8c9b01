"""The models of the corpus of failures, each in some sizes, and their graphs as torch runs them.

``full`` is the size of ``conf/model`` or of the architecture's own defaults, ``deep`` has as many operations as a large
model on few numbers, ``small`` has two layers. Sizes of ``small`` bert and gpt2 are no multiples of 8; there gpt2 has
ReLUs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from inductor_debug.models import bert, ssm, torchvision_models
from inductor_debug.models.case import Case
from inductor_debug.models.compat import prepare_torchvision
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.torch_internals import dynamo

prepare_torchvision()
import torchvision  # noqa: E402 - after its operators are known
import transformers  # noqa: E402


def gpt2(batch: int, length: int, **fields: Any) -> tuple[nn.Module, tuple[Any, ...]]:
    config = transformers.GPT2Config(use_cache=False, **fields)
    return transformers.GPT2Model(config), (torch.randint(0, config.vocab_size, (batch, length)),)


def small_swin(batch: int) -> tuple[nn.Module, tuple[Any, ...]]:
    model = torchvision.models.SwinTransformer([2, 2], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
    return model, (torch.randn(batch, 3, 32, 32),)


MODELS: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "resnet18 full": lambda batch: torchvision_models.build("resnet18", batch, 224),
    "resnet18 small": lambda batch: torchvision_models.build("resnet18", batch, 64, num_classes=10),
    "bert full": lambda batch: bert.build(batch, 128),
    "bert deep": lambda batch: bert.build(batch, 16, 99, 24, 64, 4, 128),
    "bert small": lambda batch: bert.build(batch, 21, 99, 2, 36, 4, 60),
    "ssm full": lambda batch: ssm.build(batch, 64),
    "ssm deep": lambda batch: ssm.build(batch, 32, 97, 32, 12, 4),
    "ssm small": lambda batch: ssm.build(batch, 24, 97, 32, 2, 4, chunk=4),
    "gpt2 full": lambda batch: gpt2(batch, 64),
    "gpt2 small": lambda batch: gpt2(
        batch,
        21,
        n_embd=36,
        n_layer=2,
        n_head=4,
        n_inner=60,
        vocab_size=99,
        activation_function="relu",
        bos_token_id=None,
        eos_token_id=None,
    ),
    "swin full": lambda batch: torchvision_models.build("swin_t", batch, 224),
    "swin small": small_swin,
}
"""Name and size → the model for a batch, with its inputs: ``(module, args)`` or ``(module, args, kwargs)``."""


@dataclass(frozen=True)
class Built:
    """A model with its inputs."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    mode: str

    @property
    def case(self) -> Case:
        return Case.of(self.module, self.args, self.kwargs, self.mode)


def built(model: str, size: str, mode: str, dynamic: bool, device: str) -> Built:
    """A model of random weights, without dropout, whose parameters are all different numbers.

    Args:
        model, size: of :data:`MODELS`.
        mode: ``inference`` or ``training``.
        dynamic: two inputs at once, since torch takes a size of 1 for a number.
        device: of weights and inputs.
    """
    torch.manual_seed(0)
    module, args, *rest = MODELS[f"{model} {size}"](2 if dynamic or size == "small" else 1)
    with torch.no_grad():
        for parameter in module.parameters():  # zeros and ones would hide what is done to them
            parameter.add_(0.05 * torch.randn_like(parameter) * (parameter.max() == parameter.min()))
    for part in module.modules():
        if isinstance(part, (nn.Dropout, torchvision.ops.StochasticDepth)):
            part.p = 0.0
    module = module.to(device).train(mode == "training")
    given = {key: value.to(device) for key, value in (rest[0] if rest else {}).items()}
    return Built(module, tuple(value.to(device) for value in args), given, mode)


def sizes(dynamic: bool) -> Any:
    """What ``torch.compile(dynamic=True)`` sets."""
    return torch._dynamo.config.patch(assume_static_by_default=not dynamic)


def graphs(model: Built, dynamic: bool) -> list[Seen]:
    """The AOT graphs of a step, with what each operation received and gave."""
    dynamo.reset()
    try:
        with sizes(dynamic):
            return reference_run(model.case, None).seen
    finally:
        dynamo.reset()
