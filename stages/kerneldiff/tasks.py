"""What an error means for the task: whether class scores still choose the same class, and how far they moved."""

import re
from collections.abc import Mapping
from typing import Any

import torch

from inductor_debug.stages.artifacts.comparison import TaskMeasures

CLASSIFIERS = ("resnet18", "torchvision")
"""Models of ours whose one output is a table of class scores, [batch, classes]."""

ROWS_ELEMENTS = 1 << 18
"""Elements that are widened to float64 at a time."""


def measure_tasks(model: str, reference: Mapping[str, Any], test: Mapping[str, Any]) -> list[TaskMeasures]:
    """Measures of every output that holds class scores; outputs of another shape on the other side are left out.

    Args:
        model: the model configuration's name.
        reference, test: outputs by path (see :func:`stages.numerics.structure.flatten`).
    """
    tensors = [path for path, leaf in reference.items() if isinstance(leaf, torch.Tensor)]
    found = []
    for path in tensors:
        left, right = reference[path], test.get(path)
        if not isinstance(right, torch.Tensor) or right.shape != left.shape:
            continue
        if _holds_scores(path, left, alone=model in CLASSIFIERS and len(tensors) == 1):
            found.append(compare_scores(left, right, path=path))
    return found


def compare_scores(reference: torch.Tensor, test: torch.Tensor, *, path: str = "output") -> TaskMeasures:
    """Measures of scores [..., classes] of one shape, floating dtypes; any devices."""
    classes = reference.shape[-1]
    left, right = reference.detach().reshape(-1, classes), test.detach().reshape(-1, classes)
    agreeing, total, largest = 0, 0.0, 0.0
    step = max(1, ROWS_ELEMENTS // classes)
    for start in range(0, len(left), step):
        one = left[start : start + step].double()
        other = right[start : start + step].to(one.device, torch.float64)
        agreeing += int((one.argmax(-1) == other.argmax(-1)).sum())
        logarithms = one.log_softmax(-1)
        shares = logarithms.exp()
        terms = shares * (logarithms - other.log_softmax(-1))
        divergence = torch.where(shares == 0, 0.0, terms).sum(-1).clamp(min=0)  # masked classes have -inf
        total += divergence.sum().item()
        largest = torch.maximum(divergence.max(), torch.tensor(largest, device=divergence.device)).item()
    return TaskMeasures(path, len(left), classes, agreeing / len(left), total / len(left), largest)


def _holds_scores(path: str, tensor: torch.Tensor, *, alone: bool) -> bool:
    if not tensor.is_floating_point() or tensor.ndim < 2 or tensor.shape[-1] < 2 or not tensor.numel():
        return False
    name = (re.findall(r"[A-Za-z_]\w*", path) or [""])[-1]
    return "logits" in name or "scores" in name or (alone and tensor.ndim == 2)
