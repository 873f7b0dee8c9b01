"""Generated kernels lead to the lines that a reader of the model would name: labels written by hand."""

from typing import Any

import pytest
import torch

from models.build import build_case
from models.config import ModelConfig
from stages.capture.sources import SourceFinder
from stages.lower import build_adapter, compile_case
from stages.lower.config import BackendConfig
from stages.lower.stage import graph_files

from provenance_by_hand import BERT, MASK, RESNET18, RESNET18_CALLS, RESNET18_COPIES  # isort: skip

pytestmark = pytest.mark.slow


def provenance(target: str, **build: Any) -> dict[str, Any]:
    """``provenance.json`` of a model's inference."""
    case = build_case(ModelConfig("model", {"_target_": target, **build}))
    torch._dynamo.reset()
    compiled = compile_case(case, build_adapter(BackendConfig()))
    assert list(compiled.graphs) == ["g0.forward"]
    files, _ = graph_files(compiled.graphs["g0.forward"], [], SourceFinder(case.module))
    found: dict[str, Any] = files["provenance.json"]
    return found


def lines(kernel: dict[str, Any]) -> set[str]:
    return {line["code"] for line in kernel["sources"]}


def generated(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [kernel for kernel in found["kernels"] if kernel["kind"] != "extern"]


def test_resnet18() -> None:
    found = provenance("models.torchvision_models.build", name="resnet18")
    kernels = generated(found)
    assert [lines(kernel) for kernel in kernels if not kernel["prepares"]] == RESNET18
    copies = [kernel for kernel in kernels if kernel["prepares"]]
    assert all(lines(kernel) <= RESNET18_COPIES and not kernel["nodes"] for kernel in copies)
    calls = [line for kernel in found["kernels"] if kernel["kind"] == "extern" for line in lines(kernel)]
    assert sorted(calls) == sorted(RESNET18_CALLS) and calls[0] == RESNET18_CALLS[0]
    assert found["generated_mapped_share"] == found["kernels_mapped_share"] == 1.0
    for kernel in found["kernels"]:
        assert kernel["own"] and kernel["bytes_read"] and kernel["bytes_written"]
    nodes = {node["node"]: node for node in found["pre_grad_nodes"]}
    for kernel in kernels:
        for node in kernel["pre_grad"]:
            assert f"{kernel['name']}:{kernel['handle']}" in nodes[node]["kernels"]


def test_bert() -> None:
    found = provenance("models.bert.build")
    kernels = [kernel for kernel in generated(found) if MASK not in lines(kernel)]
    assert [lines(kernel) for kernel in kernels] == BERT
    assert found["generated_mapped_share"] == 1.0
    layers = [kernel for kernel in kernels if kernel["modules"] and "encoder.layer.7" in kernel["modules"][0]]
    assert [lines(kernel) for kernel in layers] == BERT[1:4]
