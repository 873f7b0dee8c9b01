"""What an adapter may say of itself that is odd, or half of it: what is told of it stays true."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas
import pytest
import torch
from bisect_faults import Perceptron
from torch import Tensor, fx

from inductor_debug import (
    AccelConfig,
    AcceleratorAdapter,
    Findings,
    LoweredKernel,
    Lowering,
    Profile,
    Violations,
    bisect,
)
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError, root_cause
from inductor_debug.stages.accelerators.profile import load_config, validate_profile
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.constrain.rulebook import rulebook
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.registry import build_stage, declared
from inductor_debug.stages.settings import BUILT_IN, BackendConfig, Settings

OPTIONS: dict[str, dict[str, Any]] = {
    "kerneldiff": {"plots": False, "repeats": 1, "store_baseline": False},
    "profile": {"steps": 2, "warmup": 1, "trace_steps": 0, "ceiling": False},
}
STAGES = ("capture", "lower", "kerneldiff", "profile")


class Plain(AcceleratorAdapter):
    name = "plain"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return lambda *inputs: gm(*inputs)


class SaysLowers(Plain):
    lowers = True


class SaysEmulates(Plain):
    emulates = True


class LowersBehindItsOwnFront(Plain):
    lowers = True

    def dynamo_backend(self) -> Callable[..., Any]:
        return lambda gm, inputs: self.compile(gm, inputs)


class TellsNoKernels(Plain):
    def lowering(self, compiled: Callable[..., Any]) -> Lowering:
        return Lowering({"code.s": "ret"})


class NeedsNoKernel(Plain):
    def lowering(self, compiled: Callable[..., Any]) -> Lowering:
        return Lowering(kernels=[])


class LowersDynamosGraph(Plain):
    level = "dynamo"

    def lowering(self, compiled: Callable[..., Any]) -> Lowering:
        again = LoweredKernel("fused", ["linear"], "code", "cpp")
        return Lowering(kernels=[LoweredKernel("fused", ["gelu", "nowhere"], "code", "cpp"), again])


class NamesAFolder(Plain):
    def lowering(self, compiled: Callable[..., Any]) -> Lowering:
        return Lowering({"../summary.json": "x"})


class GivesText(Plain):
    def lowering(self, compiled: Callable[..., Any]) -> Any:
        return "code"


class OnlySwitches(Plain):
    def switches(self, device: str) -> dict[str, Any]:
        return {"fast": False}


class TakesAten(Plain):
    level = "aten"  # type: ignore[assignment]


class ChecksDynamosGraph(Plain):
    level = "dynamo"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def check(self, graph: GraphRecord) -> Violations:
        self.seen.append(graph.id)
        return Violations()


class Enforces(Plain):
    """A vendor's own mock: its rules are those that accel names."""

    def __init__(self, accel: AccelConfig | None = None) -> None:
        self.accel = accel or AccelConfig()

    def capabilities(self) -> Profile:
        return validate_profile(self.accel)


def run(adapter: str, *stages: str, mode: str = "inference") -> tuple[dict[str, StageResult], MemoryArtifacts]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    module = Perceptron().eval() if mode == "inference" else Perceptron()
    case = Case("p", module, (torch.randn(4, 8),), {}, mode, torch.float32, torch.device("cpu"))
    settings = Settings(ModelConfig("p"), backend=BackendConfig("x", f"{__name__}.{adapter}"), mode=mode)
    stored = MemoryArtifacts()
    context, results = StageContext(settings, stored, {"case": case}), {}
    for name in stages:
        stage = build_stage(name, declared()[name].options(**OPTIONS.get(name, {})))
        stage.check(context)
        results[name] = stage.run(context)
        stored.add(results[name])
    return results, stored


@pytest.mark.parametrize("adapter", ["SaysLowers", "TellsNoKernels"])
def test_kernels_that_are_not_told_are_not_none(adapter: str) -> None:
    results, stored = run(adapter, *STAGES, mode="training")
    told = "plain compiled 2 AOT graphs. What kernels run is not established: it does not tell."
    assert (results["lower"].status, results["lower"].message) == ("passed", told)
    facts = stored.read_json("lower/summary.json")["graphs"]
    assert [facts[graph]["kernels"] for graph in ("g0.forward", "g0.backward")] == [None, None]
    untold = "what kernels run: the backend plain does not tell them"
    assert all(untold in facts[graph]["not_established"] for graph in facts)
    assert ("lower/g0.forward/code.s" in stored.names()) == (adapter == "TellsNoKernels")
    assert not [name for name in stored.names() if name.endswith("provenance.json")]
    assert "aten.gelu" in stored.read_text("lower/g0.forward/post_grad.py")
    assert results["kerneldiff"].status == "passed" and "no graph" not in results["kerneldiff"].message
    assert results["profile"].status == "passed" and "nothing to time" not in results["profile"].message


def test_a_backend_that_says_that_it_emulates_and_not_what() -> None:
    results, stored = run("SaysEmulates", *STAGES)
    assert results["lower"].status == "skipped"
    told = "What was emulated is not established: the backend plain does not tell what it emulated: "
    assert results["lower"].message.startswith(told)
    assert results["kerneldiff"].status == "passed" and "emulat" not in results["kerneldiff"].message
    assert "lower/emulation.csv" not in stored.names()


def test_a_front_of_its_own_that_tells_nothing() -> None:
    results, _ = run("LowersBehindItsOwnFront", *STAGES)
    told = "What was compiled is not established: the backend plain does not tell what it made of the graphs."
    assert (results["lower"].status, results["lower"].message) == ("skipped", told)
    assert results["kerneldiff"].status == "passed" and "no graph" not in results["kerneldiff"].message
    assert results["profile"].status == "passed"


def test_a_graph_that_needs_no_kernel_is_told_from_one_whose_kernels_are_not() -> None:
    results, _ = run("NeedsNoKernel", "capture", "lower", "profile")
    assert results["lower"].message.startswith("plain compiled 1 AOT graph to 0 generated kernels")
    assert "not established" not in results["lower"].message


def test_dynamos_graph_lowered() -> None:
    results, stored = run("LowersDynamosGraph", "capture", "lower", "kerneldiff", mode="training")
    told, parts = results["lower"].message.split("\n")
    assert told.startswith("plain compiled 1 Dynamo graph to 1 generated kernel; 2 kernel calls")
    provenance = stored.read_json("lower/g0.dynamo/provenance.json")
    first, second = provenance["kernels"]
    assert (first["nodes"], second["nodes"]) == (["gelu"], ["linear"])
    assert first["captured"] == [{"graph": "g0.dynamo", "node": "gelu"}] and first["own"]
    (unknown,) = provenance["not_established"]
    assert unknown == "all that the kernel fused computes: the graph has no node nowhere"
    assert parts == f"Parts of 1 graph are not established: {unknown}."
    table = pandas.read_csv(io.StringIO(stored.read_text("lower/g0.dynamo/kernels.csv")))
    assert list(table.file) == ["kernels/fused.cpp"] * 2
    assert results["kerneldiff"].status == "passed"


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ("NamesAFolder", r"named a text '\.\./summary\.json'; valid: a file's name"),
        ("GivesText", "gave str; valid: an"),
    ],
)
def test_what_is_told_wrong_is_one_message(adapter: str, message: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=message) as caught:
        run(adapter, "lower")
    assert isinstance(root_cause(caught.value), ConfigurationError)


def test_switches_need_a_way_to_set_them() -> None:
    with pytest.raises(ConfigurationError, match=r"OnlySwitches \(.*has no method switched"):
        build_adapter(BackendConfig("x", f"{__name__}.OnlySwitches"))
    with pytest.raises(ConfigurationError, match=r"OnlySwitches \(.*\nTry: def switched\(self, values\): \.\.\."):
        bisect(Perceptron().eval(), (torch.randn(4, 8),), backend=OnlySwitches())


def test_a_level_that_there_is_not() -> None:
    with pytest.raises(ConfigurationError, match=r"level 'aten'; valid: aot, dynamo\.\nTry: level = 'aot'"):
        build_adapter(BackendConfig("x", f"{__name__}.TakesAten"))


def test_an_own_check_is_asked_for_the_graphs_that_it_compiles() -> None:
    adapter = ChecksDynamosGraph()
    rules = rulebook(Settings(ModelConfig(), backend=BackendConfig("x", f"{__name__}.ChecksDynamosGraph")))
    graphs = [GraphRecord(f"g0.{kind}", kind, []) for kind in ("dynamo", "forward", "backward")]
    rules.check(graphs)
    seen: list[str] = rules.own_check.__self__.seen  # type: ignore[union-attr]
    assert seen == ["g0.dynamo"] and adapter.own_check() is not None and Plain().own_check() is None


@pytest.mark.parametrize("adapter", [f"{__name__}.Enforces", "mock", "emulated"])
def test_a_backend_whose_rules_are_those_of_accel_has_none_replaced(adapter: str) -> None:
    settings = Settings(ModelConfig(), accel=load_config("strict16"), backend=BackendConfig("x", adapter))
    assert rulebook(settings).replaced == 0 and "took the place" not in rulebook(settings).note


def test_every_built_in_backend_can_be_asked_everything() -> None:
    for name in BUILT_IN:
        adapter = build_adapter(BackendConfig("eager" if name == "dynamo" else name, name))
        backend = adapter.dynamo_backend()
        assert adapter.level in ("aot", "dynamo") and adapter.switched
        assert not adapter.lowered(backend) and not adapter.compiled_graphs(backend)
        assert (adapter.inductor_options() is not None) == BUILT_IN[name].inductor == bool(adapter.switches("cpu"))
        assert (adapter.emulation() is not None) == adapter.emulates == (name == "emulated")
        assert adapter.as_traced == (name in ("eager", "aot_eager"))
        assert bool(adapter.own_check()) is False


@pytest.mark.parametrize("module", ["stages.lower.adapters", "inductor_debug.stages.backends.registry"])
@pytest.mark.parametrize("name", ["EagerAdapter", "AotEagerAdapter", "InductorAdapter"])
def test_a_stored_configuration_may_name_a_class_where_it_stood(module: str, name: str) -> None:
    assert type(build_adapter(BackendConfig("x", f"{module}.{name}"))).__name__ == name


def test_a_finding_of_no_kind() -> None:
    with pytest.raises(ValueError, match="'too_big'; valid: int_overflow, pad_leak"):
        Findings().add("g0.forward", None, "too_big", "")  # type: ignore[arg-type]


def test_nothing_looks_behind_the_door() -> None:
    """No stage asks for an adapter's class, or for a backend's name."""
    root = Path(__file__).resolve().parents[3]
    behind = ("isinstance(adapter", "type(adapter)", ".backend.adapter ==", ".backend.adapter in", "Adapter):  #")
    for file in [*root.glob("stages/**/*.py"), *root.glob("pipeline/**/*.py")]:
        if file.parent.name != "backends":
            assert not [item for item in behind if item in file.read_text()], file
