"""Bisection as a library function."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.plugins import installed_adapters
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.bisect.engine import Investigation
from inductor_debug.stages.bisect.probing import Prober
from inductor_debug.stages.bisect.records import Bisection
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.settings import BUILT_IN, BackendConfig, Settings


def bisect(
    module: torch.nn.Module,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backend: str | AcceleratorAdapter | Callable[..., Any] = "inductor",
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
    case = _case(module, args, kwargs or {}, mode)
    right = None if reference is None else _case(reference, args, kwargs or {}, mode)
    settings = Settings(ModelConfig(case.name), backend=_named(backend, inductor or {}), mode=mode)
    context = StageContext(settings, MemoryArtifacts(), {"case": case}, progress)
    prober = Prober(context, kerneldiff or KernelDiffConfig(), _maker(settings, backend), right)
    return Investigation(prober, config or BisectConfig(), progress).run()


class _Function(AcceleratorAdapter):
    """A backend as ``torch.compile`` takes it: a function of a graph and example inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = self.function(gm, list(example_inputs))
        return compiled

    def dynamo_backend(self) -> Callable[..., Any]:
        return self.function


def _case(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], mode: str) -> Case:
    tensors = [item for item in [*module.parameters(), *module.buffers(), *args, *kwargs.values()]
               if isinstance(item, torch.Tensor)]  # fmt: skip
    dtypes = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    device = tensors[0].device if tensors else torch.device("cpu")
    dtype = dtypes[0] if dtypes else torch.float32
    return Case(type(module).__name__, module, tuple(args), dict(kwargs), mode, dtype, device)


def _named(backend: str | AcceleratorAdapter | Callable[..., Any], inductor: Mapping[str, Any]) -> BackendConfig:
    """The backend's configuration; one that is given as an object has no other name than its own."""
    if not isinstance(backend, str):
        return BackendConfig("object", "object")
    known = backend in BUILT_IN or backend in installed_adapters() or "." in backend
    return BackendConfig(backend, backend if known else "dynamo", inductor=dict(inductor))


def _maker(
    settings: Settings, backend: str | AcceleratorAdapter | Callable[..., Any]
) -> Callable[[], AcceleratorAdapter]:
    if isinstance(backend, str):
        return lambda: build_adapter(settings)
    adapter = backend if isinstance(backend, AcceleratorAdapter) else _Function(backend)
    return lambda: adapter
