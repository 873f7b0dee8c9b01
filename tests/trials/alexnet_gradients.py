"""TorchInductor's gradients of AlexNet at 96 pixels, against float64: ``python tests/trials/alexnet_gradients.py``.

It imports torch alone. ``clean_architectures.py`` calls AlexNet's training in float32 a defect; this proves it to be
one of TorchInductor. It prints each gradient's RMS error over its RMS, of eager and of TorchInductor. Exit code 1
where one of TorchInductor's is above 1e-3.
"""

import copy
import sys

import torch
from torch import nn


class AlexNet(nn.Module):
    """torchvision's, without its dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(
            nn.Linear(256 * 36, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 4096), nn.ReLU(inplace=True),
            nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))
        return found


def gradients(module: nn.Module, x: torch.Tensor, weights: torch.Tensor, *, compiled: bool) -> dict[str, torch.Tensor]:
    """Of the sum of the outputs times ``weights``, in float64, by parameter."""
    function = torch.compile(module) if compiled else module
    (function(x) * weights.to(x.dtype)).sum().backward()
    return {name: value.grad.double() for name, value in module.named_parameters() if value.grad is not None}


def rms(tensor: torch.Tensor) -> float:
    return tensor.square().mean().sqrt().item()


def main() -> int:
    torch.manual_seed(0)
    module, x, weights = AlexNet(), torch.randn(2, 3, 96, 96), torch.randn(2, 1000)
    gold = gradients(copy.deepcopy(module).double(), x.double(), weights, compiled=False)
    eager, inductor = (gradients(copy.deepcopy(module), x, weights, compiled=compiled) for compiled in (False, True))
    worst = 0.0
    for name, exact in gold.items():
        errors = [rms(side[name] - exact) / rms(exact) for side in (eager, inductor)]
        worst = max(worst, errors[1])
        sys.stdout.write(f"{name:20} eager {errors[0]:.2e}  inductor {errors[1]:.2e}\n")
    return int(worst > 1e-3)


if __name__ == "__main__":
    raise SystemExit(main())
