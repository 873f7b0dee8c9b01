"""From a model's configuration to a :class:`~models.case.Case`."""

import inspect
import logging
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from inductor_debug.models.case import Case, Exercised, inputs_by_name
from inductor_debug.models.compat import prepare_torchvision
from inductor_debug.models.config import DTYPES, MODES, PRECISIONS, TF32, ModelConfig
from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice
from inductor_debug.models.exercise import exercise, is_pretrained, loads_noted
from inductor_debug.models.inputs_file import replace_inputs
from inductor_debug.models.mode import set_mode
from inductor_debug.models.nested import cast_in_place, counterpart, map_sharing
from inductor_debug.models.random_state import preserved_random_state, seed_everything
from inductor_debug.models.target import PACKAGE, full_name, resolve_target

log = logging.getLogger(__name__)

SIZES = ("batch_size", "sequence_length", "image_size")
"""Fields of ModelConfig that a build callable gets where its signature names them."""

AUTOCAST_DTYPES = ("bfloat16", "float16")


def build_case(
    model_config: ModelConfig,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    mode: str = "inference",
    precision: str = "cast",
    tf32: str = "none",
    seed: int = 0,
) -> Case:
    """Build a model and its inputs. The process's generators are left as they were found.

    The callable that ``model_config.build._target_`` names runs on the CPU with every generator seeded: equal seeds
    give equal weights on every device. The result is then cast and moved.

    Args:
        model_config: what to build.
        dtype: of floating parameters, buffers and inputs, one of ``models.config.DTYPES``; with
            ``precision="autocast"`` autocast's dtype, the module staying in float32.
        device: e.g. "cpu", "cuda" or "cuda:1".
        mode: "inference" (``module.eval()``) or "training" (``module.train()``), see :func:`models.mode.set_mode`.
        precision: "cast" or "autocast".
        tf32: which float32 operations may use TF32 on CUDA: "none", "convolutions" or "all".
        seed: of the weights and the inputs, and of every step that the case runs.

    Raises:
        ConfigurationError: a name or value above is unknown; the callable does not take its arguments, or does not
            return a module and inputs; the module does not take the inputs; the device is not there. What the callable
            itself raises is passed on.
    """
    closed = (
        ("dtype", dtype, DTYPES),
        ("mode", mode, MODES),
        ("precision", precision, PRECISIONS),
        ("tf32", tf32, TF32),
    )
    for key, value, choices in closed:
        if value not in choices:
            raise invalid_choice(key, value, choices)
    if precision == "autocast" and dtype not in AUTOCAST_DTYPES:
        error = invalid_choice("dtype", dtype, AUTOCAST_DTYPES)
        raise ConfigurationError(f"precision=autocast computes in a narrow dtype. {error}")
    where = available_device(device)
    prepare_torchvision()
    with preserved_random_state(torch.device("cpu")):
        seed_everything(seed)
        with loads_noted() as loaded:
            module, args, kwargs = _call(model_config)
        set_mode(module, mode)
        if model_config.inputs:
            args, kwargs = replace_inputs(model_config.inputs, module, args, kwargs)
        _check_inputs(module, args, kwargs, _target(model_config))
        exercised = Exercised()
        if model_config.exercise and not loaded and not is_pretrained(module):
            ours = full_name(_target(model_config)).startswith(f"{PACKAGE}.") and not model_config.inputs
            made = Case.of(module, args, kwargs, mode)
            kwargs, exercised = exercise(made, seed, inputs=ours)
            if exercised != Exercised():
                log.info("%s drawn anew; model.exercise=false leaves them as they were made", exercised)
    compute = getattr(torch, dtype)
    stored = torch.float32 if precision == "autocast" else compute
    cast = _cast_weights(module, stored)
    cast_in_place([*module.parameters(), *module.buffers()], lambda old: counterpart(old, stored))
    module.to(where)
    args, kwargs = map_sharing(lambda tensor: _moved(tensor, where, stored), (args, kwargs))
    return Case(model_config.name, module, args, kwargs, mode, compute, where, precision, tf32, seed, cast=cast,
                exercised=exercised)  # fmt: skip


def available_device(name: str, key: str = "device") -> torch.device:
    """The device called ``name``; ConfigurationError for ``key``, with what this machine has, where it is not there."""
    choices = available_devices()
    try:
        device = torch.device(name)
    except RuntimeError:
        raise invalid_choice(key, name, choices) from None
    if str(device) not in choices and not (device.index is None and f"{device.type}:0" in choices):
        raise invalid_choice(key, name, choices)
    return device


def available_devices() -> list[str]:
    """What this machine and this torch can compute on: "cpu", and the accelerator's devices as "cuda:0", ..."""
    devices = ["cpu"]
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None:
            devices += [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    return devices


def _target(config: ModelConfig) -> str:
    return str(config.build.get("_target_") or "???")


def _call(config: ModelConfig) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """Call the build callable and check what it returns."""
    target = _target(config)
    function = resolve_target(target, "model.build._target_")
    arguments = {str(key): value for key, value in config.build.items() if key != "_target_"}
    for key, value in arguments.items():
        if value == "???":
            raise ConfigurationError(f"model.build.{key}: missing.\nTry: model.build.{key}=VALUE")
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some callables written in C have no signature
        parameters = inspect.Signature().parameters
    named = [name for name, item in parameters.items() if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)]
    sizes = {name: getattr(config, name) for name in SIZES if name in named}
    takes_any = any(item.kind == item.VAR_KEYWORD for item in parameters.values())
    for key in arguments:
        if key not in named and not takes_any:
            choices = [name for name in named if name not in SIZES]
            ordered = closest_first(key, choices)
            hint = f"\nTry: model.build.{ordered[0]}={value}" if ordered else ""
            raise ConfigurationError(
                f"model.build.{key}: {target} takes no such argument; valid: {', '.join(ordered) or 'none'}.{hint}"
            )
    for name in named:
        if parameters[name].default is inspect.Parameter.empty and name not in arguments | sizes:
            raise ConfigurationError(f"model.build.{name}: {target} needs it.\nTry: +model.build.{name}=VALUE")
    return _checked_result(function(**(sizes | arguments)), target)


def _checked_result(result: Any, target: str) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    parts = result if isinstance(result, tuple) else (result,)
    module, args, kwargs = (*parts, {})[:3] if len(parts) in (2, 3) else (None, None, None)
    if isinstance(module, torch.nn.Module) and isinstance(args, tuple) and isinstance(kwargs, dict):
        return module, args, kwargs
    got = ", ".join(type(part).__name__ for part in parts)
    raise ConfigurationError(
        f"model.build._target_: {target} returned {f'({got})' if isinstance(result, tuple) else got}; valid: "
        "(module, args) or (module, args, kwargs), a torch.nn.Module, a tuple and a dict.\n"
        "Try: return model, (input,), or return model, (), inputs for a dict of keyword inputs"
    )


def _check_inputs(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], target: str) -> None:
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ConfigurationError(
            f"model.build._target_: {target} returned inputs {list(inputs_by_name(module, args, kwargs))} that "
            f"{type(module).__name__}.forward{signature} does not take: {error}."
        ) from error
    weights = [*module.named_parameters(), *module.named_buffers()]
    lazy = [name for name, tensor in weights if is_lazy(tensor)]
    if lazy:
        raise ConfigurationError(
            f"model.build._target_: {target} returned a module whose lazy weights have no shape yet ({lazy[0]}"
            f"{', …' * (len(lazy) > 1)}); valid: weights that a call has initialized.\n"
            "Try: call the module once on its inputs before returning it"
        )


def _cast_weights(module: torch.nn.Module, dtype: torch.dtype) -> str:
    """What casting a module to ``dtype`` changes of those weights that it made in another on purpose; empty: nothing.

    float32, torch's default, is no purpose.
    """
    kept = (dtype, torch.float32)
    names: dict[str, list[str]] = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point() and tensor.dtype not in kept:
            names.setdefault(str(tensor.dtype).removeprefix("torch."), []).append(name)
    to = str(dtype).removeprefix("torch.")
    told = [f"dtype={to} cast the model's {own} weights ({found[0]}{', …' * (len(found) > 1)}); dtype={own} keeps them"
            for own, found in names.items()]  # fmt: skip
    return "; ".join(told)


def _moved(tensor: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    moved = tensor.detach().to(device=device, dtype=counterpart(tensor.dtype, dtype))
    return moved.requires_grad_(tensor.requires_grad)
