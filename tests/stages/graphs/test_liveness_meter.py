"""The estimated peak of live memory against the storage that is alive while the same AOT graph is executed.

The meter shares no code with the estimate. ``fx.Interpreter`` runs the graph on the step's own tensors and drops each
value after its last use. At every node the storages that its environment still holds are added up, each once.
"""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from inductor_debug.models.build import build_case
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.capture import compilation
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.liveness import peak_live
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord
from inductor_debug.stages.torch_internals import aot

LIMIT = 0.05
Peaks = tuple[int, int, str, str]
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


class Meters:
    """One meter a graph, run on the very tensors that the step gives it.

    What a forward is given is the caller's: it stays alive, in the backward too, through whichever view the forward
    saved of it. What else the backward is given, saved activations and tangents, goes after its last use.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.meters: dict[str, Meter] = {}
        self.callers: set[int] = set()

    def boxed(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Stands in for ``make_boxed_func``, with which AOTAutograd's graphs are run."""
        gm = cast(fx.GraphModule, cast(Any, forward).__self__)

        def run(arguments: list[Any]) -> Any:
            name = self.names[id(gm)]
            tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
            if name.endswith("forward"):
                self.callers |= {tensor.untyped_storage().data_ptr() for tensor in tensors}
            kept = [tensor for tensor in tensors if tensor.untyped_storage().data_ptr() in self.callers]
            self.meters[name] = Meter(gm, kept)
            result = self.meters[name].boxed_run(arguments)
            self.meters[name].kept = []
            return result

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def both(case: Case, monkeypatch: pytest.MonkeyPatch, dynamic: bool | None = None) -> dict[str, Peaks]:
    """Graph id → estimated and measured peak, and the nodes at which they are reached."""
    meters = Meters()
    modules: list[fx.GraphModule] = []  # kept, so that no identity is used twice
    store = compilation._Recorder.store

    def keep(self: Any, record: GraphRecord, gm: fx.GraphModule) -> None:
        modules.append(gm)
        meters.names[id(gm)] = record.id
        store(self, record, gm)

    monkeypatch.setattr(compilation._Recorder, "store", keep)
    monkeypatch.setattr(aot, "make_boxed_func", meters.boxed)
    found = {}
    for record in capture(case, dynamic).graphs:
        if record.kind in ("forward", "backward"):
            peak, name = peak_live(record)
            assert peak is not None
            assert peak_live(GraphRecord.from_json(json.loads(json.dumps(record.to_json())))) == (peak, name)
            found[record.id] = (peak, meters.meters[record.id].peak, name, meters.meters[record.id].peak_node)
    return found


def check(found: dict[str, Peaks], graphs: set[str]) -> None:
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


def training(module: nn.Module, *inputs: torch.Tensor) -> Case:
    torch.manual_seed(0)
    return Case("case", module.train(), inputs, {}, "training", torch.float32, torch.device("cpu"))


@pytest.mark.parametrize(
    ("batch_first", "dropout", "dynamic"),
    [
        (True, 0.1, True),
        (False, 0.0, False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in itertools.product((False, True), (0.0, 0.1), (False, True))
            if case not in [(True, 0.1, True), (False, 0.0, False)]
        ),
    ],
)
def test_attention_saves_parts_of_one_storage(
    batch_first: bool, dropout: float, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packed query, key and value are one storage, and dropout 0 saves one result under two names."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=dropout, batch_first=batch_first)
    found = both(training(layer, torch.randn(4, 50, 64)), monkeypatch, dynamic)
    check(found, {"g0.forward", "g0.backward"})
    assert found["g0.backward"][0] == found["g0.backward"][1]


@pytest.mark.parametrize(("layers", "dropout"), [(2, 0.1), (1, 0.0), (4, 0.0)])
def test_an_encoder(layers: int, dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=dropout, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    found = both(training(encoder, torch.randn(8, 64, 128)), monkeypatch)
    check(found, {"g0.forward", "g0.backward"})


class Scaled(nn.Module):
    """Saves an expanded mask, a slice of a larger result and the parameter itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        part = torch.exp(x.repeat(1, 8))[:, :64]
        return torch.tanh((part * mask) @ self.weight.t())


def test_an_expanded_input_is_as_large_as_its_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    case = training(Scaled(), torch.randn(256, 64), torch.randn(1, 64).expand(256, 64))
    found = both(case, monkeypatch)
    check(found, {"g0.forward", "g0.backward"})


class FirstColumns(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.exp(x.repeat(1, 16))[:, :4]
        return kept, torch.sin(x) + torch.cos(x) * 2


def test_an_output_that_is_a_view_keeps_its_whole_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(
        "case", FirstColumns().eval(), (torch.randn(64, 64),), {}, "inference", torch.float32, torch.device("cpu")
    )
    found = both(case, monkeypatch)
    check(found, {"g0.forward"})
    assert found["g0.forward"][0] > 64 * 64 * 4 * 16


def test_a_capture_stored_without_storages_is_estimated_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    record = capture(training(nn.TransformerEncoderLayer(64, 4, 128), torch.randn(4, 50, 64))).graph("g0.backward")
    stored = json.loads(json.dumps(record.to_json()))
    shared = [node["name"] for node in stored["nodes"] if node.pop("shares")]
    stored_bytes = [tensor for node in stored["nodes"] for tensor in node["outputs"] if tensor.pop("storage_bytes")]
    assert shared and stored_bytes
    for node in stored["nodes"]:
        for tensor in node["outputs"]:
            del tensor["storage_hint"]
    peak, _ = peak_live(GraphRecord.from_json(stored))
    dense, _ = peak_live(replace(record, nodes=[_dense(node) for node in record.nodes]))
    assert peak == dense


def _dense(node: NodeRecord) -> NodeRecord:
    outputs = [replace(tensor, storage_bytes=None, storage_hint=None) for tensor in node.outputs]
    return replace(node, shares="", outputs=outputs)
