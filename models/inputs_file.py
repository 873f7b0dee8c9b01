"""Real inputs from a safetensors file in the place of the made ones."""

import inspect
from pathlib import Path
from typing import Any

import torch

from inductor_debug.models.case import inputs_by_name
from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.models.nested import map_tensors, named_tensors


def replace_inputs(
    file: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put the file's tensors in the place of the made inputs of the same name; inputs it does not name stay.

    What forward takes by name and was not made is given besides, by keyword.

    Args:
        file: a ``.safetensors`` file, tensors by argument name (inside a container: ``name.key``).
        module: whose forward gives positional inputs their names.
        args, kwargs: the made inputs.

    Raises:
        ConfigurationError: the file is missing, is not safetensors or holds no tensor; a name that forward does not
            take; another shape than that of the made input; or floats for integers.
    """
    loaded = _load(file)
    inputs = inputs_by_name(module, args, kwargs)
    made = {path: tensor for name, value in inputs.items() for path, tensor in named_tensors(value, name)}
    by_identity: dict[int, torch.Tensor] = {}
    parameters = inspect.signature(module.forward).parameters.values()
    named = [item.name for item in parameters if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)]
    takes = [name for name in named if inputs.get(name) is None]
    kwargs = kwargs | {name: tensor for name, tensor in loaded.items() if name in takes}
    for name, tensor in loaded.items():
        if name in takes:
            continue
        if name not in made:
            raise invalid_choice("model.inputs", name, [*made, *takes], where=file)
        _check_fits(name, tensor, made[name], file)
        by_identity[id(made[name])] = tensor.requires_grad_(made[name].requires_grad)
    return map_tensors(lambda tensor: by_identity.get(id(tensor), tensor), (args, kwargs))


def _load(file: str) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(file).is_file():
        raise ConfigurationError(f"model.inputs: got {file!r}: there is no such file; valid: a .safetensors file.")
    try:
        loaded: dict[str, torch.Tensor] = load_file(file)
    except SafetensorError as error:
        raise ConfigurationError(
            f"model.inputs: {file} is not a readable safetensors file: {error}\n"
            "Try: safetensors.torch.save_file({'input_ids': tensor}, FILE)"
        ) from error
    if not loaded:
        raise ConfigurationError(f"model.inputs: {file} holds no tensors.")
    return loaded


def _check_fits(name: str, tensor: torch.Tensor, made: torch.Tensor, file: str) -> None:
    if tensor.shape != made.shape:
        raise ConfigurationError(
            f"model.inputs: {name} in {file} has shape {list(tensor.shape)}; valid: {list(made.shape)}.\n"
            "Try: model.batch_size=…, model.sequence_length=… or model.image_size=… that fit the file"
        )
    if tensor.is_floating_point() != made.is_floating_point():
        raise ConfigurationError(
            f"model.inputs: {name} in {file} has dtype {str(tensor.dtype).removeprefix('torch.')}; valid: "
            f"{'a floating dtype' if made.is_floating_point() else str(made.dtype).removeprefix('torch.')}."
        )
