"""How many CUDA graphs torch recorded, by its own trees."""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from inductor_debug.stages.torch_internals.cuda_graphs import in_graph_memory, recorded_graphs

TREES = "torch._inductor.cudagraph_trees"
DEVICE = 0


def node(*children: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(children={0: list(children)} if children else {})


def test_every_node_of_every_tree_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = SimpleNamespace(roots={0: [node(node(), node(node()))], 1: [node()], 2: []})
    asked: list[tuple[int, bool]] = []

    def get_manager(index: int, create_if_none_exists: bool = True) -> SimpleNamespace:
        asked.append((index, create_if_none_exists))
        return manager

    monkeypatch.setitem(sys.modules, TREES, SimpleNamespace(get_manager=get_manager))
    assert recorded_graphs(DEVICE) == 5 and asked == [(0, False)]


def test_where_torch_recorded_nothing_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, TREES, SimpleNamespace(get_manager=lambda index, create_if_none_exists: None))
    assert recorded_graphs(DEVICE) == 0
    monkeypatch.delitem(sys.modules, TREES)
    assert recorded_graphs(DEVICE) == 0


@pytest.mark.parametrize(("address", "device", "expected"), [
    (1040, "cuda", True), (1099, "cuda", True), (1100, "cuda", False), (999, "cuda", False), (1040, "cpu", False),
])  # fmt: skip
def test_a_tensor_lies_in_graph_memory_by_its_address(
    address: int, device: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = (0, 7)
    segments = {pool: [{"address": 5000, "total_size": 8}, {"address": 1000, "total_size": 100}]}
    manager = SimpleNamespace(cuda_graphs_thread_pool=pool)
    trees = SimpleNamespace(
        get_manager=lambda index, create_if_none_exists: manager if index == DEVICE else None,
        get_cudagraph_segments=segments.__getitem__,
    )
    tensor: Any = SimpleNamespace(is_cuda=device == "cuda", get_device=lambda: DEVICE, data_ptr=lambda: address)
    monkeypatch.setitem(sys.modules, TREES, trees)
    assert in_graph_memory({"it": tensor}) == ({"it"} if expected else set())
    monkeypatch.delitem(sys.modules, TREES)
    assert in_graph_memory({"it": tensor}) == set()


def test_torch_has_the_names_that_are_relied_on() -> None:
    from torch._inductor import cudagraph_trees as trees

    assert list(inspect.signature(trees.get_manager).parameters) == ["device_index", "create_if_none_exists"]
    assert "self.roots: dict" in inspect.getsource(trees.CUDAGraphTreeManager.__init__)
    assert "self.children: dict" in inspect.getsource(trees.CUDAGraphNode.__init__)
    assert "self.cuda_graphs_thread_pool = " in inspect.getsource(trees.CUDAGraphTreeManager.__init__)
    assert list(inspect.signature(trees.get_cudagraph_segments).parameters) == ["pool_id"]
