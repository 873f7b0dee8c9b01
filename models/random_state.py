"""Random numbers of the process: seeded, saved and put back. Python's, NumPy's, torch's on the CPU and on a device."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators, the latter on every device. ``seed`` may be any integer."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextmanager
def preserved_random_state(device: torch.device) -> Iterator[None]:
    """Put every generator's state back on exit: Python's, NumPy's, torch's on the CPU and on ``device``."""
    python, legacy, cpu = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    module = None if device.type in ("cpu", "meta") else torch.get_device_module(device)
    on_device = None if module is None else module.get_rng_state(device)
    try:
        yield
    finally:
        random.setstate(python)
        numpy.random.set_state(legacy)
        torch.set_rng_state(cpu)
        if module is not None:
            module.set_rng_state(on_device, device)


def input_generator() -> torch.Generator:
    """A CPU generator at the process's seed, for making inputs.

    Inputs that are drawn from it do not depend on how many numbers the weights used.
    """
    return torch.Generator().manual_seed(torch.initial_seed())


def own_numbers(seed: int, *use: int) -> numpy.random.Generator:
    """NumPy's generator for one use of a case's seed: no mode of torch, device or kind of CPU changes its numbers.

    Args:
        seed: any integer.
        use: what for; other uses get other numbers.
    """
    return numpy.random.default_rng([abs(seed), int(seed < 0), *use])
