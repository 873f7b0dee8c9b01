"""Localization as a library function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import MODES, ModelConfig
from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.models.options import check_declared
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.given import GivenBackend, maker_of, named
from inductor_debug.stages.localize.carried import Carried
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.localize.engine import Engine, Localized
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.torch_internals import dynamo


def _check(module: object, args: object, options: object, factor: float, mode: str) -> None:
    """Raise ConfigurationError for arguments that can't be meant."""
    if not isinstance(module, torch.nn.Module):
        raise ConfigurationError(f"module: got a {type(module).__name__}; valid: a torch.nn.Module.")
    if isinstance(args, torch.Tensor):
        raise ConfigurationError("args: got a tensor; valid: a tuple of the module's inputs.\nTry: (x,)")
    if not isinstance(options, LocalizeConfig):
        raise ConfigurationError(
            f"config: got a {type(options).__name__}; valid: a LocalizeConfig of "
            "inductor_debug.stages.localize.config.\nTry: LocalizeConfig(most=3)"
        )
    check_declared(options, "stages.kerneldiff.localize")
    if not factor > 0:
        raise ConfigurationError(f"factor: got {factor}; valid: a number above 0.\nTry: factor=4.0")
    if options.steps and mode != "training":
        raise ConfigurationError(
            f"config: got steps={options.steps} in mode={mode}, where nothing is trained.\nTry: mode='training'"
        )


def localize(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: str | AcceleratorAdapter | GivenBackend = "inductor",
    inductor: Mapping[str, Any] | None = None,
    mode: str = "inference",
    factor: float = 4.0,
    config: LocalizeConfig | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Localized:
    """Which operations of a compiled model are wrong for what they received, whatever its outputs show.

    Args:
        module: the model, in ``train()`` or ``eval()``. It, its inputs and the random generators are left as found;
            all that Dynamo compiled in this process is forgotten (``torch._dynamo.reset``).
        args, kwargs: its inputs; tensors of any shape and dtype.
        backend: a name that ``backend=`` of a run or of ``torch.compile`` takes, a callable for ``torch.compile``, or
            an adapter.
        inductor: options of TorchInductor, for ``backend="inductor"``.
        mode: ``inference``, or ``training`` to look at the backward graphs too.
        factor: error over its own rounding noise above which a value is wrong.
        config: ``LocalizeConfig(budget_s=…, most=…)`` of ``stages.localize.config``: for how long to look, and how far.
        progress: told of each step.

    Returns:
        What was found: ``localization.message`` says it, ``rows`` has every value that was seen.

    Raises:
        ConfigurationError: no such backend or mode, an argument that can't be meant, or an option that the backend, or
            localization, does not take.
    """
    if mode not in MODES:
        raise invalid_choice("mode", mode, MODES)
    options = LocalizeConfig() if config is None else config
    _check(module, args, options, factor, mode)
    case = Case.of(module, args, kwargs or {}, mode)
    settings = Settings(ModelConfig(case.name), backend=named(backend, inductor or {}), mode=mode)
    adapter = maker_of(settings, backend)()
    adapter.validate()
    dynamo.reset()
    try:
        engine = Engine(case, adapter, options, factor=factor, progress=progress)
        carried = Carried(options.steps) if options.steps and mode == "training" else None
        return engine.run(calls=range(1, options.call + 1), carried=carried)
    finally:
        dynamo.reset()
