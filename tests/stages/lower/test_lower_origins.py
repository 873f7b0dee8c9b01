"""Where kernels of a backward came from, where torch records it for another operation, or not at all."""

from typing import Any

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.graphs.records import SourceLine
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.stage import graph_files
from inductor_debug.stages.settings import BackendConfig

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


class Block(torch.nn.Module):
    """Two activations, batches that are counted, and a tensor read twice: ``x``, first by ``second``."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.pool, self.relu = torch.nn.BatchNorm2d(4), torch.nn.MaxPool2d(3, 2, 1), torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.norm(x)
        x = self.relu(x)
        x = self.pool(x)
        y = self.second(x)
        y = y + x
        return self.relu(y)


@pytest.fixture(scope="module")
def backward() -> dict[str, Any]:
    torch._dynamo.reset()
    x = torch.randn(1, 3, 10, 10)
    case = Case("block", Block().train(), (x,), {}, "training", torch.float32, torch.device("cpu"))
    graph = compile_case(case, build_adapter(BackendConfig())).graphs["g0.backward"]
    return jsonable(graph_files(graph, [], SourceFinder(case.module))[0]["provenance.json"])


def lines(kernel: dict[str, Any]) -> set[str]:
    return {line["code"] for line in kernel["sources"]}


def own_line(kernel: dict[str, Any], code: str) -> str:
    return next(f"{line['file']}:{line['line']}" for line in kernel["sources"] if line["code"] == code)


def kernel_of(backward: dict[str, Any], node: str) -> dict[str, Any]:
    (launch,) = backward["post_grad_nodes"][node]
    return next(kernel for kernel in backward["kernels"] if f"{kernel['name']}:{kernel['handle']}" == launch)


def test_a_constant_that_operations_share_does_not_lend_its_line(backward: dict[str, Any]) -> None:
    """Both activations' gradients choose between a value and the same 0, made for the last one's."""
    last, first = [kernel for kernel in backward["kernels"] if "full_default" in kernel["nodes"]]
    assert "return self.relu(y)" in lines(last)
    assert {"x = self.norm(x)", "x = self.relu(x)"} <= lines(first) and "return self.relu(y)" not in lines(first)
    sources = {node["node"]: node["source"] for node in backward["pre_grad_nodes"]}
    returned = {node for node, source in sources.items() if source == own_line(last, "return self.relu(y)")}
    assert returned <= set(last["pre_grad"]) and not returned & set(first["pre_grad"])


@pytest.mark.skipif(TORCH < (2, 12), reason="torch 2.11 gathers the pool's gradient, in the kernel that reads it")
def test_what_reads_an_overwritten_buffer_is_told_with_it(backward: dict[str, Any]) -> None:
    """The pool's gradient is scattered into zeros; torch gives these another name from there on."""
    kernel = kernel_of(backward, "where_1")
    assert kernel["nodes"][0] == "where_1"
    read = {buffer["name"]: buffer for buffer in kernel["reads"]}
    (zeros,) = (buffer for buffer in read.values() if buffer["role"] == "buffer")
    assert (zeros["shape"], zeros["bytes"]) == ([4, 64], 4 * 4 * 64)
    assert 0 < zeros["accessed_bytes"] <= zeros["bytes"]


def test_a_sum_of_gradients_has_the_origin_of_the_one_that_is_added(backward: dict[str, Any]) -> None:
    """Torch gives it the sequence number of the forward's last operation."""
    made = {module: {name for node in backward["pre_grad_nodes"] if node["module"] == module
                     for name in node["post_grad"] if name.startswith("add_")}
            for module in ("second", "relu")}  # fmt: skip
    assert len(made["second"]) == 1 and not made["relu"]
    kernel = kernel_of(backward, *made["second"])
    assert "y = self.second(x)" in lines(kernel)


def test_a_count_of_batches_is_no_origin_of_a_convolutions_gradient(backward: dict[str, Any]) -> None:
    """It needs no gradient itself, so that torch gives it the convolution's sequence number."""
    calls = [kernel for kernel in backward["kernels"] if kernel["kind"] == "extern"]
    targets = {node["node"]: node["target"] for node in backward["pre_grad_nodes"]}
    assert [{targets[name] for name in kernel["pre_grad"]} for kernel in calls] == [{"torch.nn.functional.conv2d"}] * 2


def test_a_line_of_a_constructor_is_not_one_that_the_model_runs() -> None:
    finder = SourceFinder(Block())
    in_forward, in_constructor = (SourceLine(__file__, 20, "", name) for name in ("forward", "__init__"))
    assert finder.is_own(in_forward) and not finder.is_own(in_constructor)
    assert not finder.is_own(SourceLine(f"{torch.__path__[0]}/nn/functional.py", 20, "", "relu"))
