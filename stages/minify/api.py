"""Minimization as a library function."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import MODES, ModelConfig
from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.models.options import check_declared
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.given import GivenBackend, maker_of, named
from inductor_debug.stages.minify.anywhere import smallest_anywhere
from inductor_debug.stages.minify.compilers import compiler_of, predicate_of
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import Minified, smallest
from inductor_debug.stages.minify.judges import Asked, Compiled
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.settings import Settings


def minify(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    failing: Callable[..., bool] | None = None,
    *,
    backend: str | AcceleratorAdapter | GivenBackend = "inductor",
    inductor: Mapping[str, Any] | None = None,
    mode: str = "inference",
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]] = (),
    dynamic: bool | None = None,
    at: tuple[str, Sequence[str]] | None = None,
    factor: float = 4.0,
    config: MinifyConfig | None = None,
    folder: Path | None = None,
    workers: Workers | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Minified:
    """The smallest program that shows what goes wrong when a model is compiled, or of which a function says yes.

    The model's graphs are recorded as torch runs them. Each part of them that is tried is a script, run in a process of
    its own: what it shows is what the script shows that is given in the end.

    Args:
        module: the model, in ``train()`` or ``eval()``. It, its inputs and the random generators are left as found;
            all that Dynamo compiled in this process is forgotten (``torch._dynamo.reset``).
        args, kwargs: its inputs; tensors of any shape and dtype.
        failing: a function that a script can import: ``failing(program, inputs)`` says whether a program, a function of
            the inputs, shows what is looked for. It is called without gradients; what it raises is no yes. None: a
            failure of ``torch.compile`` is looked for.
        backend: a name that ``backend=`` of a run or of ``torch.compile`` takes, a function or a class of adapters that
            a script can import, or an adapter that is as its class makes it without arguments.
        inductor: options of TorchInductor, for ``backend="inductor"``.
        mode: ``inference``, or ``training`` to look at the backward graphs too.
        calls: positional and keyword arguments of further calls of the module, where a failure needs them: a storm of
            recompilations, or state that one call leaves to the next.
        dynamic: as ``torch.compile`` takes it.
        at: graph and nodes at which the failure is known to be, as ``localize()`` names them.
        factor: error over that of eager above which a result is wrong.
        config: ``MinifyConfig(budget_s=…)`` of ``stages.minify.config``: for how long to look.
        folder: where programs and what is known of them stay, so that a search goes on from there; None for nowhere.
        workers: run the programs, so that several searches start them once: ``Workers(packages=[…])`` of
            ``stages.minify.workers``, with the backend's package; None starts some.
        progress: told of each step.

    Returns:
        The script, whether it is verified, and what it shows.

    Raises:
        ConfigurationError: no such backend or mode.
        NotReproducible: no script can import the backend, or ``failing``.
    """
    if mode not in MODES:
        raise invalid_choice("mode", mode, MODES)
    if isinstance(args, torch.Tensor):
        raise ConfigurationError("args: got a tensor; valid: a tuple of the module's inputs.\nTry: (x,)")
    case = Case.of(module, args, kwargs or {}, mode)
    options = MinifyConfig() if config is None else config
    check_declared(options, "stages.minify")
    folder = None if folder is None else Path(folder).absolute()
    shared: dict[str, Any] = {"dynamic": dynamic, "folder": folder, "workers": workers, "progress": progress}
    if failing is not None:
        return smallest(case, Asked(predicate_of(failing)), options, at=at, **shared)
    settings = Settings(ModelConfig(case.name), backend=named(backend, inductor or {}), mode=mode)
    adapter = maker_of(settings, backend)()
    adapter.validate()
    judge = Compiled(compiler_of(adapter), factor)
    further = [(tuple(given), dict(named_ones)) for given, named_ones in calls]
    return smallest_anywhere(case, judge, options, at=at, calls=further, **shared)
