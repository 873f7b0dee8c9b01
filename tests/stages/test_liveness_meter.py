"""The estimated peak of live memory against the storage that is alive while the same AOT graph is executed.

The meter shares no code with the estimate: ``fx.Interpreter`` runs the graph and drops each value after its last use,
and at every node the storages that its environment still holds are added up, each once.
"""

from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from models.build import build_case
from models.case import Case
from models.config import ModelConfig
from stages.capture import compilation
from stages.capture.compilation import capture
from stages.graphs import GraphRecord
from stages.liveness import peak_live

LIMIT = 0.05
BUILDS = {
    "resnet18": {"_target_": "models.torchvision_models.build", "name": "resnet18"},
    "bert": {
        "_target_": "models.bert.build",
        "vocabulary": 119547, "layers": 12, "width": 768, "heads": 12, "intermediate": 3072,
    },
    "ssm": {
        "_target_": "models.ssm.build",
        "vocabulary": 16384, "width": 512, "layers": 11, "state": 16, "expand": 2, "convolution": 4, "chunk": 16,
    },
}  # fmt: skip


class Meter(fx.Interpreter):
    """Bytes of all storages alive at once, at most."""

    def __init__(self, gm: fx.GraphModule, kept: list[torch.Tensor]) -> None:
        super().__init__(gm)
        self.kept, self.peak, self.peak_node = kept, 0, ""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n.op not in ("placeholder", "output"):
            alive = [*tree_leaves([*self.env.values()]), *tree_leaves(result), *self.kept]
            sizes = {
                tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
                for tensor in alive
                if isinstance(tensor, torch.Tensor)
            }
            if sum(sizes.values()) > self.peak:
                self.peak, self.peak_node = sum(sizes.values()), n.name
        return result


def measured(record: GraphRecord, gm: fx.GraphModule) -> Meter:
    """Run the graph on zeros of its inputs' shapes; parameters, buffers and inputs are the caller's and stay alive."""
    inputs = []
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        made = (
            torch.empty_strided(value.shape, value.stride(), dtype=value.dtype) if hasattr(value, "stride") else value
        )
        inputs.append(made.zero_() if isinstance(made, torch.Tensor) else int(made))
    owned = [node.name for node in record.nodes if node.op == "placeholder" and node.role not in ("saved", "tangent")]
    names = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    kept = [
        value for name, value in zip(names, inputs, strict=True) if name in owned and isinstance(value, torch.Tensor)
    ]
    meter = Meter(gm, kept)
    arguments = list(inputs)
    inputs.clear()
    with torch.no_grad():
        meter.run(*arguments)
    return meter


def both(case: Case, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int, str, str]]:
    """Graph id → estimated and measured peak, and the nodes at which they are reached."""
    modules: dict[str, fx.GraphModule] = {}
    store = compilation._Recorder.store

    def keep(self: Any, record: GraphRecord, gm: fx.GraphModule) -> None:
        modules[record.id] = gm
        store(self, record, gm)

    monkeypatch.setattr(compilation._Recorder, "store", keep)
    found = {}
    for record in capture(case).graphs:
        if record.kind in ("forward", "backward"):
            peak, name = peak_live(record)
            meter = measured(record, modules[record.id])
            assert peak is not None
            found[record.id] = (peak, meter.peak, name, meter.peak_node)
    return found


def check(found: dict[str, tuple[int, int, str, str]], graphs: set[str]) -> None:
    assert set(found) == graphs
    for name, (estimated, real, at, really_at) in found.items():
        assert abs(estimated - real) <= LIMIT * real, f"{name}: {estimated:,} at {at}, measured {real:,} at {really_at}"


class Small(nn.Module):
    """Views, several outputs, in-place updates, statistics and a value that is needed long after it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.first, self.last = nn.Linear(32 * 64, 512), nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.convolution(x)))
        left, right = y.chunk(2, dim=1)
        z = torch.cat([left * 2, right.transpose(2, 3).contiguous()], dim=1).add_(y)
        pooled, _ = nn.functional.max_pool2d(z, 4, return_indices=True)
        return self.last(torch.tanh(self.first(pooled.flatten(1))) + y.mean())


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_small(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module = Small().train(mode == "training")
    case = Case("small", module, (torch.randn(4, 3, 32, 32),), {}, mode, torch.float32, torch.device("cpu"))
    check(both(case, monkeypatch), {"g0.forward"} | ({"g0.backward"} if mode == "training" else set()))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("model", BUILDS)
def test_the_three_models(model: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = build_case(ModelConfig(model, BUILDS[model]), mode=mode)
    check(both(case, monkeypatch), {"g0.forward"} | ({"g0.backward"} if mode == "training" else set()))
