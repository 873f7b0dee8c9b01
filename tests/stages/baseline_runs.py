"""Small models, adapters and stored runs for the tests of baseline runs, and a branch within rounding for others."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.sides import baseline_store as baseline_store

VERDICT_COLUMNS = [
    *("kind", "path", "shape", "dtype", "verdict", "bound", "message", "elements", "mismatched", "max_abs", "rmse"),
    *("floor_rms", "floor_max", "error_rms", "error_max", "ratio", "factor", "reference_rms"),
]


class Scaled(AcceleratorAdapter):
    """Its first floating output is wrong by a thousandth."""

    name = "scaled"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            first, *rest = gm(*args)
            return (first * 1.001, *rest)

        return run


class Flipping(AcceleratorAdapter):
    """Gives no gradient to the first of three elements, as eager would with the ReLU's input a rounding error lower."""

    name = "flipping"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if not any("tangents" in node.name for node in gm.graph.nodes if node.op == "placeholder"):
            return gm.forward
        keep = torch.tensor([0.0, 1.0, 1.0])
        return lambda *args: tuple(out * keep if getattr(out, "shape", None) == (3,) else out for out in gm(*args))


class Gate(nn.Module):
    """A ReLU whose first element lies within rounding of its branch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 + 0.5 * torch.relu(x * self.weight - 1)


def at_the_branch() -> tuple[torch.Tensor]:
    """The input of :class:`Gate` that lies there."""
    return (torch.tensor([1.0 + 2.0**-23, 1.0, 1.0]),)


class CountsEager(nn.Module):
    """A layer that notes every call of its Python code outside of a compiler."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            CALLS.append(x.dtype)
        return self.layer(x)


CALLS: list[torch.dtype] = []


class Net(nn.Module):
    """Batch statistics, dropout where asked for, an input that it writes into and leaves of many types."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)
        self.last, self.drop = nn.Linear(16, 4), nn.Dropout(drop)
        self.register_buffer("untouched", torch.arange(3.0))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> dict[str, Any]:
        hidden = torch.relu(self.norm(self.first(x)))
        cache[0] = 7
        logits = self.last(self.drop(hidden))
        return {"logits": logits, "turned": logits.T, "states": [hidden, None], "steps": 3, "name": "net", "none": []}


def context_of(
    adapter: str = "aot_eager",
    *,
    module: Callable[[], nn.Module] | None = None,
    inputs: tuple[torch.Tensor, ...] | None = None,
    mode: str = "training",
    seed: int = 0,
    dtype: str = "float32",
    drop: float = 0.0,
) -> StageContext:
    """A fresh context, as another process would build it."""
    torch._dynamo.reset()
    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    built = (module() if module else Net(drop)).to(kind).train(mode == "training")
    inputs = inputs or (torch.randn(8, 6).to(kind).T, torch.zeros(2, dtype=torch.int64))
    case = Case("net", built, inputs, {}, mode, kind, torch.device("cpu"), seed=seed)
    backend = BackendConfig(adapter, f"{__name__}.{adapter}" if adapter[0].isupper() else adapter)
    settings = Settings(ModelConfig("net"), backend=backend, mode=mode, dtype=dtype, seed=seed)
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def run(context: StageContext, **options: Any) -> StageResult:
    stage = KernelDiffStage(KernelDiffConfig(**options))
    stage.check(context)
    return stage.run(context)


def stored(folder: Path, context: StageContext | None = None, **options: Any) -> tuple[str, StageResult]:
    """Run, write what it gives to ``folder`` as the runner does, and return both."""
    result = run(context or context_of(), **options)
    for name, content in result.artifacts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encode(name, content))
    return str(folder), result


def judged(result: StageResult) -> bytes:
    return encode("a.csv", result.artifacts["kerneldiff/outputs.csv"][VERDICT_COLUMNS])


def altered(folder: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """Change ``baseline.json`` and make its digests fit, as another machine would have written it."""
    file = folder / baseline_store.FOLDER / "baseline.json"
    about = json.loads(file.read_bytes())
    del about["sha256"]
    change(about)
    for name, told in about["files"].items():
        content = (file.parent / name).read_bytes()
        told |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    file.write_text(json.dumps(about | {"sha256": baseline_store.digest(about)}))
    return str(folder)
