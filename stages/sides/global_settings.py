"""Settings of the whole process that a side may leave changed: put back, and told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "torch.set_default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch.set_grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "torch.set_num_threads": (torch.get_num_threads, torch.set_num_threads),
    "torch.set_float32_matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "torch.use_deterministic_algorithms": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda found: torch.use_deterministic_algorithms(found[0], warn_only=found[1]),
    ),
}
"""What sets it → how it is read and set."""


@contextmanager
def settings_put_back() -> Iterator[list[str]]:
    """Put the settings back on exit. Yields a list that then names those that were others, with both values."""
    before = {name: read() for name, (read, _) in SETTINGS.items()}
    changed: list[str] = []
    try:
        yield changed
    finally:
        for name, (read, write) in SETTINGS.items():
            found = read()
            if found != before[name]:
                changed.append(f"{name} ({before[name]} before, {found} after)")
                write(before[name])
