"""Any operations of a graph are a program, and its source computes what the graph computed."""

import operator
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.minify.candidate import (
    Candidate,
    Normal,
    NumberGiven,
    Operations,
    Stored,
    TensorGiven,
    Whole,
    drawn_like,
)
from inductor_debug.stages.minify.judges import Compiled
from inductor_debug.stages.minify.minimize import cost
from inductor_debug.stages.minify.script import Compiler, script
from inductor_debug.stages.minify.source import expression, function_source
from inductor_debug.stages.minify.trials import Trials, numbers
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import NotReproducible

aten = torch.ops.aten

EAGER = Compiler("'eager'")


class Mixed(torch.nn.Module):
    """Several results of one operation, views, strides, whole numbers, a constant, and -inf among the arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = torch.nn.Embedding(20, 12), torch.nn.LayerNorm(12)
        self.register_buffer("mask", torch.ones(5, 5, dtype=torch.bool).tril())

    def forward(self, tokens: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.norm(self.table(tokens))
        scores = (x @ x.transpose(1, 2)).masked_fill(~self.mask, float("-inf")).softmax(-1)
        top, places = (scores @ x @ weight.t()).float().topk(3, dim=-1)
        return top, places, x.transpose(1, 2)[:, ::2], x.to(torch.bfloat16).sum((0, 1))


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Operations, Trials]:
    torch.manual_seed(0)
    torch.compiler.reset()
    case = Case.of(Mixed().eval(), (torch.randint(0, 20, (3, 5)), torch.randn(12, 8).t()), {}, "inference")
    trials = Trials(Workers(), Compiled(EAGER))
    trials.move(tmp_path)
    return Operations(reference_run(case, None).seen[0], trials.keep), trials


def executed(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "script"}
    exec(compile(text, "script.py", "exec"), names)
    return names


@pytest.mark.parametrize("seed", range(12))
def test_the_source_of_any_operations_computes_what_they_gave(
    recorded: tuple[Operations, Trials], tmp_path: Path, seed: int
) -> None:
    operations, _ = recorded
    draw = random.Random(seed)
    kept = sorted(draw.sample(range(len(operations.units)), draw.randint(1, len(operations.units))))
    candidate = operations.candidate(kept)
    names = executed(script(candidate, EAGER, data=str(tmp_path)))
    (output,) = (node for node in candidate.graph.nodes if node.op == "output")
    results = names["program"](*names["inputs"]())
    assert len(results) == len(output.args[0]) > 0
    for node, result in zip(output.args[0], results, strict=True):
        right = operations.run.values[node.name]
        assert torch.equal(result, right) and result.stride() == right.stride()
        assert result.dtype == right.dtype
    members = {node.name for place in kept for node in operations.units[place]}
    assert {node.name for node in candidate.calls} == members
    assert candidate.operations == len(kept)


def test_what_takes_several_results_apart_stays_with_what_gives_them(recorded: tuple[Operations, Trials]) -> None:
    operations, _ = recorded
    units = [[str(node.target) for node in unit] for unit in operations.units]
    assert ["aten.topk.default", str(operator.getitem), str(operator.getitem)] in units
    (norm,) = operations.index(["native_layer_norm"])
    assert operations.index(["getitem"]) == [norm]
    assert all(cost(unit) >= 1 for unit in operations.units)


def test_what_was_not_kept_can_not_be_given(recorded: tuple[Operations, Trials]) -> None:
    operations, _ = recorded
    del operations.run.values["getitem"]  # type: ignore[attr-defined]
    (reader,) = (node for node in operations.run.graph.nodes if node.name == "getitem")
    last = operations.index([next(iter(reader.users)).name])
    with pytest.raises(NotReproducible, match="getitem gave was not kept"):
        operations.candidate(last)


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (float("inf"), "math.inf"), (-float("inf"), "-math.inf"), (float("nan"), "math.nan"), (1e-5, "1e-05"),
        (torch.float32, "torch.float32"), (torch.device("cuda:1"), "torch.device('cuda:1')"),
        (torch.channels_last, "torch.channels_last"), (torch.strided, "torch.strided"), (True, "True"), (2j, "2j"),
        (slice(1, None, 2), "slice(1, None, 2)"), ((1,), "(1,)"), ([1, (2, 3)], "[1, (2, 3)]"), (..., "..."),
        ({"a": None}, "{'a': None}"),
    ],
)  # fmt: skip
def test_an_argument_as_source(value: Any, source: str) -> None:
    assert expression(value, {}) == source


def test_what_no_source_stands_for_is_told() -> None:
    with pytest.raises(NotReproducible, match="an argument of type set"):
        expression({1}, {})
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(executed, (x,)),))
    with pytest.raises(NotReproducible, match="not one of torch's own functions"):
        function_source(_candidate(graph))


def test_dynamo_graphs_have_functions_and_methods_of_torch() -> None:
    graph = fx.Graph()
    x = graph.placeholder("print")  # which a script needs
    made = graph.call_function(torch.nn.functional.gelu, (x,))
    made = graph.call_method("view", (made, -1))
    graph.output((graph.call_function(operator.add, (made, 1.0)), graph.call_function(torch.sin, (made,))))
    text = function_source(_candidate(graph))
    names: dict[str, Any] = {"torch": torch, "operator": operator}
    exec(text, names)
    given = torch.randn(2, 3)
    right = torch.nn.functional.gelu(given).view(-1)
    assert "def program(print_1)" in text
    assert all(map(torch.equal, names["program"](given), (right + 1.0, right.sin())))


def _candidate(graph: fx.Graph) -> Candidate:
    return Candidate(graph, (NumberGiven("x", 1),))


@pytest.mark.parametrize(
    "value",
    [torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 8)[::2, 1:4], torch.randn(4, 1).expand(4, 5),
     torch.randn(0, 3), torch.tensor(2.0), torch.arange(12).view(3, 4)],
)  # fmt: skip
def test_numbers_are_those_of_the_memory(value: torch.Tensor) -> None:
    flat = numbers(value)
    assert torch.equal(flat.as_strided(value.shape, value.stride()), value)
    length = TensorGiven("x", tuple(value.shape), value.stride(), value.dtype, "cpu", 0, Stored("x"), Normal()).length
    assert flat.numel() == length


def test_what_stands_for_numbers_has_their_size() -> None:
    assert drawn_like(torch.tensor([3, 9, 4])) == Whole(3, 10)
    assert drawn_like(torch.tensor([True, False])) == Whole(0, 2)
    assert drawn_like(torch.full((4,), 2.5)) == Normal(2.5, 0.0)
    assert drawn_like(torch.tensor([float("nan"), 7.0])) == Normal(7.0, 0.0)
    assert drawn_like(torch.zeros(0)) == Normal()
    alike = drawn_like(torch.randn(10000) * 5 + 100)
    assert isinstance(alike, Normal) and abs(alike.mean - 100) < 1 and abs(alike.deviation - 5) < 0.2


def test_what_is_known_of_a_program_is_not_told_of_other_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same source, of a model with other weights: it runs again."""
    ran: list[str] = []
    monkeypatch.setattr(Trials, "_once", lambda self, text, operations: (ran.append(text), True))
    graph = fx.Graph()
    graph.output((graph.call_function(aten.relu.default, (graph.placeholder("x"),)),))
    given = TensorGiven("x", (2,), (1,), torch.float32, "cpu", 0, Stored("x"), Normal())
    for value in (1.0, 1.0, 2.0):
        trials = Trials(Workers(), Compiled(EAGER))
        trials.move(tmp_path)
        trials.keep("x", torch.full((2,), value))
        trials.found(Candidate(graph, (given,)))
        assert torch.equal(trials.kept("x"), torch.full((2,), value))
    assert len(ran) == 2 and ran[0] == ran[1]
