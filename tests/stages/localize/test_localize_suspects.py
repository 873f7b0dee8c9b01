"""Whether a wrong value is explained by what is known to be wrong."""

import operator

import torch
from torch import fx

from inductor_debug.stages.localize.regions import Seen
from inductor_debug.stages.localize.replay import Replay
from inductor_debug.stages.localize.suspects import Found, explained

aten = torch.ops.aten


def test_of_an_operation_with_several_results_the_one_that_is_wrong_deviates() -> None:
    """A layer norm's mean is wrong, and a value of the same kernel goes on with it."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    norm = graph.call_function(aten.native_layer_norm.default, (x, [32], None, None, 1e-5), name="norm")
    mean = graph.call_function(operator.getitem, (norm, 1), name="mean")
    doubled = graph.call_function(aten.mul.Tensor, (mean, 2.0), name="doubled")
    graph.output((mean, doubled))
    value = torch.randn(8, 32)
    norm.meta["val"] = aten.native_layer_norm.default(value, [32], None, None, 1e-5)
    for node in (x, mean, doubled):
        node.meta["val"] = torch.empty(())
    wrong = norm.meta["val"][1] + 0.5
    kernels = {"mean": "k:1", "doubled": "k:1"}
    values = {"mean": wrong, "doubled": wrong * 2}
    replay = Replay(Seen("g0.forward", graph, torch.nn.Module(), {"x": value}, values, kernels))
    whole = {node.name: replay.region(node, whole=True) for node in (mean, doubled)}
    local = replay.compared(whole["mean"])
    assert local.wrong and replay.compared(whole["doubled"]).wrong
    found = Found([norm], local, "operation", [], replay.deviation(whole["mean"]))
    assert explained(replay, whole["doubled"], [found])
    assert not explained(replay, whole["doubled"], [])
