"""What a process has of torch, to be compared with what it has later: functions, classes, configuration, settings.

A script of its own: ``python torch_fingerprint.py import FILE`` imports every module of this project, compares, and
prints what changed; ``use FILE`` compiles with it, ``bare FILE`` with torch alone. ``FILE`` holds names of torch's
modules to import first, one a line; without it the names of those that are imported then are printed.
"""

import faulthandler
import importlib
import logging
import os
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
OURS = "inductor_debug"
CONFIGURATIONS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")


def fingerprint() -> dict[str, Any]:
    """Name → identity of each function and class, and of what is in a class; value of each setting."""
    found: dict[str, Any] = {}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "torch" and isinstance(module, types.ModuleType):
            for key, value in list(vars(module).items()):
                found |= dict(_identities(f"{name}.{key}", value))
    import torch

    for name in CONFIGURATIONS:
        if name in sys.modules:
            found |= {f"{name}.{key}": value for key, value in sys.modules[name].get_config_copy().items()}
    found |= {
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "generator": torch.get_rng_state().tolist(),
        "gradients": torch.is_grad_enabled(),
        "warnings": [str(item) for item in warnings.filters],
        "faulthandler": faulthandler.is_enabled(),
        "exception hook": id(sys.excepthook),
        "recursion limit": sys.getrecursionlimit(),
        "handlers": [repr(handler) for handler in logging.root.handlers],
        "backends": sorted(torch._dynamo.list_backends(())) if "torch._dynamo" in sys.modules else [],
    }
    found |= {f"environment {name}": value for name, value in os.environ.items()}
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            found[f"logger {name}"] = logger.level, logger.propagate, [repr(handler) for handler in logger.handlers]
    return found


def _identities(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.FunctionType):
        yield name, (id(value), id(value.__code__))
    elif isinstance(value, type) and value.__module__.startswith("torch"):
        yield name, id(value)
        for key, item in list(vars(value).items()):
            if isinstance(item, types.FunctionType | staticmethod | classmethod | property):
                yield f"{name}.{key}", (id(item), id(getattr(item, "__code__", None)))


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what is no longer what it was; what was not there before is not told."""
    return sorted(name for name, value in before.items() if after.get(name, "gone") != value)


def import_all() -> None:
    """Import every module of this project."""
    for info in pkgutil.walk_packages([str(ROOT / OURS)], f"{OURS}."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)


def _broken(x: Any) -> Any:
    import torch

    torch._dynamo.graph_break()
    return x.sin()


def _model() -> Any:
    import torch

    with torch.random.fork_rng():
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


def bare() -> None:
    """Compile as a user of torch does: torch changes itself then."""
    import torch

    with torch._inductor.config.patch(force_disable_caches=True):
        for function in (_broken, _model()):
            for backend in ("inductor", "aot_eager"):
                torch.compile(function, backend=backend)(torch.ones(2, 4))


def use() -> None:
    """Compile and ask as a user of the library does."""
    import torch

    from inductor_debug.models.case import Case
    from inductor_debug.models.config import ModelConfig
    from inductor_debug.stages.bisect.api import bisect
    from inductor_debug.stages.capture.config import CaptureConfig
    from inductor_debug.stages.capture.stage import CaptureStage
    from inductor_debug.stages.contract import MemoryArtifacts, StageContext
    from inductor_debug.stages.guards.inspection import inspect_guards
    from inductor_debug.stages.lower.config import LowerConfig
    from inductor_debug.stages.lower.stage import LowerStage
    from inductor_debug.stages.settings import Settings

    model, x = _model(), torch.ones(2, 4)
    for backend in ("mock", "aot_mock", "mock"):
        torch.compile(model, backend=backend)(x)
        torch.compile(_broken, backend=backend)(x)
        torch.compile(model, backend=backend, fullgraph=True)(x)
        torch._dynamo.reset()
    case = Case("model", model, (x,), {}, "inference", torch.float32, torch.device("cpu"))
    context = StageContext(Settings(ModelConfig("model")), MemoryArtifacts(), {"case": case})
    for stage in (CaptureStage(CaptureConfig()), LowerStage(LowerConfig())):
        assert stage.run(context).status == "passed"
    bisect(model, (x,))
    inspect_guards(model, (x,))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    work = {"import": import_all, "use": use, "bare": bare}[sys.argv[1]]
    if len(sys.argv) == 2:
        work()
        found = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torch"}
        # in the order in which they came: torch's own modules can't be imported in any other
        print("\n".join(name for name, module in found.items() if getattr(module, "__spec__", None)))
        sys.exit()
    for line in Path(sys.argv[2]).read_text().splitlines():
        importlib.import_module(line)
    earlier = fingerprint()
    work()
    print("\n".join(changed(earlier, fingerprint())))
