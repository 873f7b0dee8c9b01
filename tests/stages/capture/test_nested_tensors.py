"""Nested and sparse tensors in a model, and modules of ``torch.export``, through the stages."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from inductor_debug.models.build import build_case
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.contents import same_bits
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.nested import strided_parts
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.benchmark.memory import case_bytes
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.graphs.statistics import statistics
from inductor_debug.stages.guards.config import GuardsConfig
from inductor_debug.stages.guards.stage import GuardsStage
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.settings import Settings


def config(name: str, **build: Any) -> ModelConfig:
    return ModelConfig(name, {"_target_": f"nested_models.{name}", **build})


def case_of(name: str, mode: str = "inference", **build: Any) -> Case:
    return build_case(config(name, **build), mode=mode)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("result", ["values", "padded", "nested"])
@pytest.mark.parametrize("name", ["inside", "given"])
def test_a_jagged_tensor_is_recorded_as_what_it_is(name: str, result: str, mode: str) -> None:
    found = capture(case_of(name, mode, result=result))
    graph = found.graph("g0.dynamo")
    jagged = [tensor for node in graph.nodes for tensor in node.outputs if tensor.layout == "jagged"]
    assert len(jagged) >= 3 and all(tensor.dtype == "float32" for tensor in jagged)
    rows, symbol, width = jagged[0].shape
    assert rows == (3 if name == "inside" else 2) and width == 8
    assert isinstance(symbol, str) and graph.symbols[symbol]["hint"] is None
    assert jagged[0].nbytes is None and jagged[0].numel is None
    assert {graph.kind for graph in found.graphs} >= {"dynamo", "forward"}
    assert all(tensor.layout == "strided" for node in found.graph("g0.forward").nodes for tensor in node.outputs)
    assert GraphRecord.from_json(graph.to_json()).nodes == graph.nodes
    peaks = {row.graph: row.peak_live_bytes for row in statistics(found.graphs) if row.scope == "graph"}
    assert peaks["g0.dynamo"] is None and peaks["g0.forward"] is not None


def test_the_size_of_a_jagged_dimension_is_undecided_by_a_limit_of_bytes() -> None:
    graph = replace(capture(case_of("inside")).graph("g0.dynamo"), id="g0.forward", kind="forward")
    jagged = {node.name for node in graph.nodes for tensor in node.outputs if tensor.layout == "jagged"}
    found = check([graph], AccelConfig("chip", strict=True, max_tensor_bytes=8))
    told = {row.node: row.severity for row in found if row.operand == "output"}
    assert jagged and {told[name] for name in jagged} == {"undecided"}


@pytest.mark.parametrize("layout", ["jagged", "strided"])
def test_a_nested_input_is_left_as_found_counted_and_cast(layout: str) -> None:
    case = case_of("given", "training", result="nested", layout=layout)
    tensor = case.args[0]
    assert case.run().written == {}
    assert same_bits(tensor, tensor.clone()) and not same_bits(tensor, tensor + 1)
    parameters = sum(parameter.nbytes for parameter in case.module.parameters())
    assert case_bytes(case) == parameters + 7 * 8 * 4 + (3 * 8 if layout == "jagged" else 0)
    gold = case.to_gold() if layout == "jagged" else case
    assert {part.dtype for part in strided_parts(gold.args[0])} - {torch.int64} == {gold.dtype}
    assert gold.run().loss is not None


@pytest.mark.parametrize(
    ("build", "verdict"),
    [
        ({"name": "given", "result": "nested"}, "exact"),
        ({"name": "given", "result": "nested", "layout": "strided"}, "not_exercised"),
        ({"name": "sparse"}, "exact"),
        ({"name": "sparse", "given": True}, "not_exercised"),
        ({"name": "exported"}, "exact"),
    ],
)
def test_stages_compare_and_vary_them(build: dict[str, Any], verdict: str) -> None:
    build = dict(build)
    model = config(build.pop("name"), **build)
    artifacts = MemoryArtifacts()
    context = StageContext(Settings(model), artifacts)
    result = KernelDiffStage(KernelDiffConfig()).run(context)
    assert result.summary["numerics"].verdict == verdict, result.message
    assert result.summary["numerics"].compared >= 1
    context.live.clear()
    assert GuardsStage(GuardsConfig()).run(context).status in ("passed", "failed")


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_module_of_torch_export_keeps_the_mode_it_was_exported_in(training: bool, wrapped: bool) -> None:
    own, other = ("training", "inference") if training else ("inference", "training")
    case = case_of("exported", own, training=training, wrapped=wrapped)
    assert (case.module.training is training and case.run().loss is not None) or not training
    with pytest.raises(NotImplementedError):
        (case.module[0] if wrapped else case.module).eval()  # type: ignore[index]
    with pytest.raises(ConfigurationError, match=rf"fixed in {own} mode \(dropout[\s\S]*Try: mode={own}, or torch.exp"):
        case_of("exported", other, training=training, wrapped=wrapped)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_module_that_was_exported_and_unflattened_keeps_its_mode_too(mode: str) -> None:
    """It takes ``train()`` and ``eval()``, but its operators go on as before."""
    other = "inference" if mode == "training" else "training"
    training = mode == "training"
    assert case_of("exported", mode, training=training, unflattened=True).module.training is training
    with pytest.raises(ConfigurationError, match=rf"fixed in {mode} mode \(dropout"):
        case_of("exported", other, training=training, unflattened=True)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_an_exported_graph_without_a_mode_runs_in_both(mode: str) -> None:
    assert case_of("exported", mode, dropout=0.0).module.training is (mode == "training")
