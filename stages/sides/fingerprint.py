"""What must be equal for two runs to have the same reference: configuration, weights, inputs, place."""

import platform
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.sides import packing


def identity(settings: Settings) -> dict[str, Any]:
    """The part of the configuration that decides what the reference is, by dotted key."""
    build = {f"model.build.{key}": value for key, value in settings.model.build.items()}
    rest = {key: getattr(settings, key) for key in ("mode", "dtype", "precision", "tf32")}
    identity: dict[str, Any] = jsonable({"model.name": settings.model.name} | build | rest)
    return identity


def named_weights(case: Case) -> dict[str, torch.Tensor]:
    """Every parameter and buffer by name, one that has two names once."""
    return {**dict(case.module.named_parameters()), **dict(case.module.named_buffers())}


def stored_weights(case: Case) -> dict[str, torch.Tensor]:
    """Every parameter and buffer as a safetensors file holds it, by name."""
    return {name: packing.pack_tensor(tensor, name)[1] for name, tensor in named_weights(case).items()}


def weights(case: Case, *, content: bool = True) -> dict[str, dict[str, Any]]:
    """Dtype, shape and (with ``content``) the whole record (``packing.pack_tensor``) and SHA-256 of every parameter and
    buffer, by name.

    Raises:
        CannotStore: with ``content``, a tensor whose bytes can't be had.
    """
    return _records(named_weights(case), content=content)


def inputs(case: Case, *, content: bool = True) -> dict[str, dict[str, Any]]:
    """The same of every input; with ``content``, one that is not strided can't be stored."""
    named = case.named_inputs()
    for name, tensor in named.items():
        if content and tensor.layout != torch.strided:
            raise packing.CannotStore(f"input {name} is a {str(tensor.layout).removeprefix('torch.')} tensor")
    return _records(named, content=content)


def _records(named: dict[str, torch.Tensor], *, content: bool) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, tensor in named.items():
        found[name] = {"dtype": dtype_name(tensor), "shape": list(tensor.shape)}
        if content:
            found[name] = packing.pack_tensor(tensor, name)[0] | {"sha256": packing.tensor_digest(tensor)}
    return found


def shapes(tensors: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Dtype and shape of each in words."""
    return {name: f"{tensor['dtype']} {list(tensor['shape'])}" for name, tensor in tensors.items()}


def dtype_name(tensor: torch.Tensor) -> str:
    """``float32``."""
    return str(tensor.dtype).removeprefix("torch.")


def made_with(case: Case) -> dict[str, Any]:
    """Versions, and what decides which of torch's kernels run."""
    import numpy
    import safetensors

    on_cuda = case.device.type == "cuda"
    return {
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "safetensors": safetensors.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "device": str(case.device),
        "device_name": torch.cuda.get_device_name(case.device) if on_cuda else platform.machine(),
    }
