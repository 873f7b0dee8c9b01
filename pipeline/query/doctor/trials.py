"""What ``doctor`` tries, each in a fresh process: ``python trials.py TRIAL``.

A trial prints one line of JSON, what it found, or raises. A library that takes the process with it, or that can't be
imported, says nothing of the others.
"""

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from inductor_debug.models.compat import prepare_torchvision
from inductor_debug.stages.backends.plugins import distribution, installed_adapters


def torch_build() -> dict[str, Any]:
    """torch, and the devices that it sees."""
    import torch

    count = torch.cuda.device_count()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "devices": [torch.cuda.get_device_name(index) for index in range(count)],
    }


def compiles_on_cpu() -> dict[str, Any]:
    """TorchInductor's C++: generated, compiled and run."""
    return _compiled("cpu")


def compiles_on_cuda() -> dict[str, Any]:
    """TorchInductor's Triton: generated, compiled and run."""
    return _compiled("cuda")


def _compiled(device: str) -> dict[str, Any]:
    import torch

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.relu(x) + 1, -1)

    torch.manual_seed(0)
    x = torch.randn(64, 64, device=device)
    torch.testing.assert_close(torch.compile(function)(x), function(x))
    return {"device": device}


def torchvision_operators() -> dict[str, Any]:
    """torchvision, as runs import it, and whether its own operators are there: they are built for one torch."""
    stood_in_for = prepare_torchvision()
    import torchvision

    return {"version": torchvision.__version__, "operators": not stood_in_for}


def transformers_models() -> dict[str, Any]:
    """transformers, whose models import more than its top does."""
    prepare_torchvision()
    from transformers import BertModel

    return {"version": version("transformers"), "model": BertModel.__name__}


def adapter(name: str) -> dict[str, Any]:
    """A backend that an installed package adds: its class can be imported."""
    (point,) = installed_adapters()[name]
    point.load()
    return {"package": distribution(point)}


TRIALS: dict[str, Callable[..., dict[str, Any]]] = {
    trial.__name__: trial
    for trial in (torch_build, compiles_on_cpu, compiles_on_cuda, torchvision_operators, transformers_models, adapter)
}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(TRIALS[sys.argv[1]](*sys.argv[2:])) + "\n")
