"""What must be equal for two runs to have the same reference: configuration, weights, inputs, place."""

import platform
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts.baseline import HashedTensor, HashedTensors, MadeWith
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.sides import packing

LOSS = "projection"
"""The loss of a training step, :mod:`models.loss`. Earlier versions took the mean square, and stored no name of it."""


def identity(settings: Settings) -> dict[str, Any]:
    """The part of the configuration that decides what the reference is, by dotted key."""
    build = {f"model.build.{key}": value for key, value in settings.model.build.items()}
    rest = {key: getattr(settings, key) for key in ("mode", "dtype", "precision", "tf32")}
    loss = {"loss": LOSS} if settings.mode == "training" else {}
    return jsonable({"model.name": settings.model.name} | build | rest | loss)


def named_weights(case: Case) -> dict[str, torch.Tensor]:
    """Every parameter and buffer by name, one that has two names once."""
    return {**dict(case.module.named_parameters()), **dict(case.module.named_buffers())}


def stored_weights(case: Case) -> dict[str, torch.Tensor]:
    """Every parameter and buffer as a safetensors file holds it, by name."""
    return {name: packing.pack_tensor(tensor, name)[1] for name, tensor in named_weights(case).items()}


def weights(case: Case) -> dict[str, HashedTensor]:
    """The record and SHA-256 of every parameter and buffer, by name; CannotStore for one whose bytes can't be had."""
    return _hashed(named_weights(case))


def inputs(case: Case) -> dict[str, HashedTensor]:
    """The same of every input; one that is not strided can't be stored."""
    named = case.named_inputs()
    for name, tensor in named.items():
        if tensor.layout != torch.strided:
            raise packing.CannotStore(f"input {name} is a {str(tensor.layout).removeprefix('torch.')} tensor")
    return _hashed(named)


def _hashed(named: dict[str, torch.Tensor]) -> dict[str, HashedTensor]:
    return {
        name: HashedTensor(**vars(packing.pack_tensor(tensor, name)[0]), sha256=packing.tensor_digest(tensor))
        for name, tensor in named.items()
    }


def shapes(named: dict[str, torch.Tensor]) -> dict[str, str]:
    """Dtype and shape of each in words."""
    return {name: f"{packing.dtype_name(tensor)} {[*tensor.shape]}" for name, tensor in named.items()}


def stored_shapes(stored: HashedTensors) -> dict[str, str]:
    """The same of stored ones."""
    return {name: f"{tensor.dtype} {tensor.shape}" for name, tensor in stored.tensors.items()}


def made_with(case: Case) -> MadeWith:
    """Versions, and what decides which of torch's kernels run."""
    import numpy
    import safetensors

    on_cuda = case.device.type == "cuda"
    return MadeWith(
        torch=torch.__version__,
        numpy=numpy.__version__,
        safetensors=safetensors.__version__,
        python=platform.python_version(),
        machine=platform.machine(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        device=str(case.device),
        device_name=torch.cuda.get_device_name(case.device) if on_cuda else platform.machine(),
    )
