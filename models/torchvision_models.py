"""torchvision's classification models by name, with random weights."""

from typing import Any

import torch
from torch import nn

from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.models.random_state import input_generator


def build(name: str, batch_size: int, image_size: int, **options: Any) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """The classification model called ``name`` and one batch of images.

    Args:
        name: as in ``torchvision.models.list_models(module=torchvision.models)``.
        batch_size, image_size: of the images, (batch, 3, image_size, image_size) in float32.
        options: passed to torchvision's builder, e.g. ``num_classes``.

    Raises:
        ConfigurationError: no model of that name, or an option that it does not take.
    """
    import torchvision

    choices = torchvision.models.list_models(module=torchvision.models)
    if name not in choices:
        raise invalid_choice("model.build.name", name, choices)
    if name.startswith("vit_"):
        options.setdefault("image_size", image_size)  # a ViT reads images of one size alone
    try:
        model = torchvision.models.get_model(name, weights=None, **options)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"model.build: torchvision's {name} does not take {options}: {error}\n"
            f'Try: python -c "import torchvision; help(torchvision.models.{name})"'
        ) from error
    return model, (torch.randn(batch_size, 3, image_size, image_size, generator=input_generator()),)
