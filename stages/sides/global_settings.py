"""Settings of the whole process that a side may leave changed: put back, and told."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from inductor_debug.models.tf32 import BY_BACKEND, float32_products, set_float32_products
from inductor_debug.models.torch_private import set_cudnn_benchmark, set_cudnn_deterministic


@dataclass(frozen=True)
class Setting:
    """One setting of the process.

    Attributes:
        read: its value.
        write: sets it.
        default: torch's own; None where the machine decides.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    default: Any = None


SETTINGS: dict[str, Setting] = {
    "torch.set_default_dtype": Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    "torch.set_grad_enabled": Setting(torch.is_grad_enabled, torch.set_grad_enabled, default=True),
    "torch.set_num_threads": Setting(torch.get_num_threads, torch.set_num_threads),
    "torch.set_float32_matmul_precision": Setting(float32_products, set_float32_products, "highest"),
    "torch.use_deterministic_algorithms": Setting(
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda found: torch.use_deterministic_algorithms(found[0], warn_only=found[1]),
        (False, False),
    ),
    "torch.backends.cudnn.benchmark": Setting(lambda: torch.backends.cudnn.benchmark, set_cudnn_benchmark, False),
    "torch.backends.cudnn.deterministic": Setting(
        lambda: torch.backends.cudnn.deterministic, set_cudnn_deterministic, False
    ),
    **{
        f"torch.backends.cuda.enable_{name}_sdp": Setting(
            getattr(torch.backends.cuda, f"{name}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{name}_sdp"),
            True,
        )
        for name in ("flash", "mem_efficient", "math", "cudnn")
    },
}
"""By what sets it. What may use TF32 is the run's own (``tf32``)."""


def not_default() -> dict[str, str]:
    """The settings that are not torch's own, as their values are written; the number of threads is left out."""
    found = {name: (setting.read(), setting.default) for name, setting in SETTINGS.items()}
    return {name: str(value) for name, (value, default) in found.items() if default is not None and value != default}


@contextmanager
def settings_put_back() -> Iterator[list[str]]:
    """Put the settings back on exit. Yields a list that then names those that were others, with both values."""
    before = {name: setting.read() for name, setting in SETTINGS.items()}
    changed: list[str] = []
    try:
        yield changed
    finally:
        for name, setting in SETTINGS.items():
            found = setting.read()
            if found != before[name] and BY_BACKEND not in (found, before[name]):
                changed.append(f"{name} ({before[name]} before, {found} after)")
                setting.write(before[name])
