"""Bisection as a library function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.given import GivenBackend, maker_of, named
from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.bisect.engine import Investigation
from inductor_debug.stages.bisect.probing import Prober
from inductor_debug.stages.bisect.records import Bisection
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.settings import Settings


def bisect(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: str | AcceleratorAdapter | GivenBackend = "inductor",
    inductor: Mapping[str, Any] | None = None,
    mode: str = "inference",
    reference: torch.nn.Module | None = None,
    config: BisectConfig | None = None,
    kerneldiff: KernelDiffConfig | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Bisection:
    """Which part of the compiler, and what in it, makes a wrong result or a failure go away.

    Args:
        module: the model, in ``train()`` or ``eval()``. It, its inputs and the random generators are left as found;
            all that Dynamo compiled in this process is forgotten (``torch._dynamo.reset``).
        args, kwargs: its inputs.
        backend: a name that ``backend=`` of a run or of ``torch.compile`` takes, a callable for ``torch.compile``, or
            an adapter, which then is used for every probe.
        inductor: options of TorchInductor, for ``backend="inductor"``.
        mode: ``inference``, or ``training`` to compare gradients too.
        reference: a module that is right, with the parameters' names and values of ``module``; default: the module
            itself in eager. With it, a model that is wrong itself is told from a compiler that is.
        config, kerneldiff: how to search, and how to judge; the stages' options.
        progress: told of each probe.

    Returns:
        What was found: ``answer`` says it in a line, ``probes`` has all that was tried.

    Raises:
        ConfigurationError: no such backend, or an option that it does not take.
    """
    case = Case.of(module, args, kwargs or {}, mode)
    right = None if reference is None else Case.of(reference, args, kwargs or {}, mode)
    settings = Settings(ModelConfig(case.name), backend=named(backend, inductor or {}), mode=mode)
    context = StageContext(settings, MemoryArtifacts(), {"case": case}, progress)
    prober = Prober(context, kerneldiff or KernelDiffConfig(), maker_of(settings, backend), right)
    return Investigation(prober, config or BisectConfig(), progress).run()
