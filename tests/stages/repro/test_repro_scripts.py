"""Scripts written from records: executed, they show on real tensors what the rule judged on the graph."""

import ast
import contextlib
import io
import re
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.backends.graph_records import graph_records
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.repro import NotReproducible, Program
from inductor_debug.stages.repro.values import index_ranges
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.repros import Repro, Repros, write_repros

RULES = {"alignment": 16, "layout": "contiguous", "dtypes": ["float32"], "max_tensor_bytes": 4}


def dynamo_graph(function: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> GraphRecord:
    found: list[GraphRecord] = []

    def backend(gm: Any, inputs: Any) -> Any:
        found.extend(graph_records({"g0.dynamo": gm}))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    return found[0]


def aten_graph(function: Callable[..., Any], *args: Any) -> GraphRecord:
    from torch.fx.experimental.proxy_tensor import make_fx

    return graph_records({"g0.forward": make_fx(function, tracing_mode="fake")(*args)})[0]


def written(graph: GraphRecord, **profile: Any) -> Repros:
    """Every script for a strict profile, none of them run."""
    config = AccelConfig("chip", strict=True, **profile)
    return write_repros([graph], check(graph, config), limit=1000, verified=0)


def run(text: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """A script executed in this process: exit code and output."""
    file, output = folder / "repro.py", io.StringIO()
    file.write_text(text)
    before, sys.argv = sys.argv, [str(file), *arguments]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0), output.getvalue()
    finally:
        sys.argv = before
    raise AssertionError("the script did not exit")


def reproduced(repros: Repros, folder: Path) -> list[Repro]:
    """The scripts, each of which was executed and showed its violation."""
    assert repros.scripts and not repros.without, repros
    for item in repros.scripts:
        code, output = run(item.text, folder)
        assert (code, item.line in output.splitlines()) == (0, True), f"{item.name}: {output}\n{item.text}"
    return list(repros.scripts)


def embedding(table: torch.Tensor, ids: torch.Tensor) -> Any:
    return F.embedding(ids, table)


def in_place(x: torch.Tensor) -> Any:
    y = x * 1
    return F.relu(y, inplace=True).add_(1)


def views(x: torch.Tensor) -> Any:
    return x.transpose(0, 1)[1:, ::2] + 1, x[:, 3:].unfold(1, 3, 2) * 2


def several(x: torch.Tensor) -> Any:
    values, where = x.topk(3)
    return torch.cat([values, x, x], 1), where, torch.split(x, 4, dim=1)


def dtypes(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> Any:
    return torch.where(a, b, 1) * 2, c * 2.0, torch.view_as_real(d), d * (1 + 2j), ~a, b.to(torch.int8)


def indices(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> Any:
    return x[i], x[:, j], x.gather(1, j.unsqueeze(0)), x.index_select(1, j), x[None, ..., j], torch.take(x, i)


def constants(x: torch.Tensor) -> Any:
    mask = torch.full((3, 3), float("-inf"), dtype=torch.float32, device="cpu")
    return x.to(torch.float64), x.clamp(min=float("-inf"), max=1e-7), mask.triu(1), F.gelu(x, approximate="tanh")


def classes(x: torch.Tensor, target: torch.Tensor) -> Any:
    return F.cross_entropy(x, target), F.one_hot(target, 5), F.nll_loss(x, target)


def linear_algebra(x: torch.Tensor) -> Any:
    factors, pivots = torch.linalg.lu_factor(x)
    return torch.linalg.lu_solve(factors, pivots, x), torch.lu_unpack(factors, pivots)[1]


X = torch.randn(6, 10)
CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "embedding": (embedding, (torch.randn(50, 6), torch.tensor([[0, 49, 7]]))),
    "in_place": (in_place, (X,)),
    "views": (views, (X,)),
    "several": (several, (X,)),
    "dtypes": (dtypes, (X > 0, torch.arange(60).view(6, 10), X.bfloat16(), torch.complex(X, X))),
    "indices": (indices, (X, torch.tensor([5, 0]), torch.tensor([9, 1, 2]))),
    "constants": (constants, (X,)),
    "classes": (classes, (torch.randn(4, 5), torch.tensor([0, 4, 2, 1]))),
    "linear_algebra": (linear_algebra, (torch.randn(3, 3),)),
    "offset": (lambda x: x + 1, (torch.randn(70)[3:63].view(6, 10).t(),)),
}


@pytest.mark.parametrize("graph_of", [dynamo_graph, aten_graph])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_operand_and_operation(name: str, graph_of: Any, tmp_path: Path) -> None:
    function, args = CASES[name]
    graph = graph_of(function, *args)
    calls = [node for node in graph.nodes if node.op.startswith("call_")]
    scripts = reproduced(written(graph, **RULES, denied=["*"]), tmp_path)
    assert calls and {node.target for node in calls} <= {item.rows[0].target for item in scripts}


def test_a_script_holds_the_operands_of_the_model(tmp_path: Path) -> None:
    x = torch.randn(80, dtype=torch.bfloat16)[5:65].view(6, 10).t()
    (script,) = reproduced(written(dynamo_graph(lambda x: torch.sin(x), x), denied=["torch.sin"]), tmp_path)
    made = runpy.run_path(str(tmp_path / "repro.py"))["make_inputs"]()
    (tensor,) = made.values()
    assert (tensor.shape, tensor.stride(), tensor.dtype) == (x.shape, x.stride(), x.dtype)
    assert tensor.storage_offset() == 5 and "torch.sin(" in script.text


@pytest.mark.parametrize("graph_of", [dynamo_graph, aten_graph])
def test_indices_reach_over_the_whole_table_and_not_beyond(graph_of: Any, tmp_path: Path) -> None:
    ids = torch.zeros(40, 50, dtype=torch.int64)
    graph = graph_of(embedding, torch.randn(30, 6), ids)
    reproduced(written(graph, denied=["aten.embedding"]), tmp_path)
    made = runpy.run_path(str(tmp_path / "repro.py"))["make_inputs"]()
    drawn = next(value for value in made.values() if value.dtype == torch.int64)
    assert drawn.unique().tolist() == list(range(30))


def test_pivots_count_from_one() -> None:
    node = NodeRecord("s", "call_function", "aten.lu_solve.default", [{"node": "b"}, {"node": "lu"}, {"node": "p"}])
    assert index_ranges(node, lambda name: [4, 4]) == {"p": (1, 5)}


def test_a_placeholder_gets_the_operations_that_read_it(tmp_path: Path) -> None:
    module = nn.Linear(16, 7)
    graph = dynamo_graph(module, torch.randn(2, 16))
    repros = written(graph, alignment=16)
    script = next(item for item in reproduced(repros, tmp_path) if item.rows[0].operand == "parameter")
    assert "torch.nn.functional.linear(" in script.text and script.nodes == 1


def test_equal_parameters_share_a_script() -> None:
    graph = dynamo_graph(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 7)), torch.randn(2, 16))
    repros = written(graph, dtypes=["bfloat16"])
    counts = [len(item.rows) for item in repros.scripts if item.rows[0].operand == "parameter"]
    assert sorted(counts) == [1, 1, 2, 2]  # weight and bias of the last, and those of the first two


def test_symbolic_sizes_take_the_values_of_the_case_and_say_so(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[1], x.shape[0] * 1).sin() + x.shape[0]

    graph = dynamo_graph(function, torch.randn(5, 7), dynamic=True)
    assert graph.symbols
    scripts = reproduced(written(graph, denied=["torch.Tensor.reshape", "sin", "reshape", "_operator.add"]), tmp_path)
    assert len(scripts) == 3
    for item in scripts:
        assert re.search(r"Symbolic sizes have the values that they had in this case: s\d+=[57]", item.text), item.text
    assert any(".reshape(7, 5)" in item.text for item in scripts)


def test_scripts_need_torch_alone_and_parse(tmp_path: Path) -> None:
    for function, args in CASES.values():
        for item in written(aten_graph(function, *args), **RULES).scripts:
            imported = {
                (node.module if isinstance(node, ast.ImportFrom) else alias.name).partition(".")[0]
                for node in ast.walk(ast.parse(item.text))
                if isinstance(node, (ast.Import, ast.ImportFrom))
                for alias in node.names
            }
            assert imported <= {"torch", *sys.stdlib_module_names}
            assert len(item.text) < 10_000 and "pickle" not in item.text


def test_equal_operations_share_a_script() -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.relu(x)
        return torch.relu(x.t().contiguous())

    repros = written(dynamo_graph(chain, X), denied=["aten.relu"])
    assert sorted(len(item.rows) for item in repros.scripts) == [1, 6]
    assert len({item.name for item in repros.scripts}) == 2


def test_the_bound_is_counted_and_each_rule_comes_first() -> None:
    graph = dynamo_graph(several, X)
    config = AccelConfig("chip", strict=True, **RULES, denied=["*"])
    everything = write_repros([graph], check(graph, config), limit=1000, verified=0)
    few = write_repros([graph], check(graph, config), limit=5, verified=0)
    assert {item.rows[0].rule for item in few.scripts} == {item.rows[0].rule for item in everything.scripts}
    kinds, shown = (
        Counter(f"{item.rows[0].rule} of {item.rows[0].target}" for item in some.scripts) for some in (everything, few)
    )
    left = len(everything.scripts) - 5
    assert Counter(few.left_out) == kinds - shown and len(few.left_out) == left
    told = f"; {left} further kinds of violation without one, for no more are written: "
    assert told in str(few) and all(kind in str(few).partition(told)[2] for kind in few.left_out)
    assert all(item.record.verified is False and item.record.reason for item in few.scripts)


def test_a_backend_can_be_given_and_its_failure_is_no_violation(tmp_path: Path) -> None:
    (script,) = written(dynamo_graph(lambda x: torch.sin(x), X), denied=["sin"]).scripts
    torch._dynamo.reset()
    code, output = run(script.text, tmp_path, "--backend", "aot_eager")
    assert code == 0 and "BACKEND aot_eager same_shape_and_dtype=True max_abs_difference=0.0" in output
    code, output = run(script.text, tmp_path, "--backend", "test_repro_scripts:refusing")
    assert code == 3 and "the chip has no sine" in output
    assert run(script.text, tmp_path, "--no-such-option")[0] == 2


def refusing(gm: Any, inputs: Any) -> Any:
    raise RuntimeError("the chip has no sine")


@pytest.mark.parametrize(
    ("rules", "find", "replacement"),
    [
        ({"alignment": 16}, "[6, 10], [10, 1]", "[6, 16], [16, 1]"),
        ({"dtypes": ["bfloat16"]}, "torch.float32", "torch.bfloat16"),
        ({"max_tensor_bytes": 100}, "[6, 10], [10, 1]", "[6, 1], [1, 1]"),
        ({"denied": ["aten.sin"]}, "torch.ops.aten.sin.default", "torch.ops.aten.cos.default"),
        ({"max_rank": 1}, "[6, 10], [10, 1]", "[60], [1]"),
        ({"max_size": 8}, "[6, 10], [10, 1]", "[6, 8], [8, 1]"),
        ({"rules": [Rule("size", value={"min": 12})]}, "[6, 10], [10, 1]", "[12, 12], [12, 1]"),
        ({"tile": [2, 8]}, "[6, 10], [10, 1]", "[6, 8], [8, 1]"),
        ({"rules": [Rule("layout", value={"stride": 16}, unit="bytes")]}, "[6, 10], [10, 1]", "[6, 8], [8, 1]"),
    ],
)
def test_a_script_without_the_fault_does_not_show_it(
    rules: dict[str, Any], find: str, replacement: str, tmp_path: Path
) -> None:
    item = next(i for i in written(aten_graph(torch.sin, X), **rules).scripts if "sin" in i.rows[0].node)
    assert find in item.text
    code, output = run(item.text.replace(find, replacement), tmp_path)
    assert code == 1 and "FITS" in output and item.line not in output


@pytest.mark.parametrize("activation", [F.relu6, F.rrelu])
def test_a_call_in_place_that_torch_takes_apart_shows_its_name(activation: Any, tmp_path: Path) -> None:
    graph = dynamo_graph(lambda x: activation(x * 2, inplace=True), X)
    (script,) = reproduced(written(graph, denied=[f"aten.{activation.__name__}_"]), tmp_path)
    code, output = run(script.text.replace("inplace=True", "inplace=False"), tmp_path)
    assert code == 1 and "FITS" in output


def record(target: str, args: list[Any], kind: str = "dynamo", **more: Any) -> GraphRecord:
    x = NodeRecord("x", "placeholder", "x", outputs=[TensorRecord([4], "float32", [1], "cpu")])
    call = NodeRecord("call", "call_function", target, args, inputs=["x"], outputs=x.outputs, **more)
    return GraphRecord(f"g0.{kind}", kind, [x, call])


@pytest.mark.parametrize(
    ("target", "args", "reason"),
    [
        ("my_package.ops.attention", [{"node": "x"}], "not one of torch's own"),
        ("higher_order.cond", [{"node": "x"}], "takes a graph"),
        ("torch.add", [{"node": "x"}, {"tensor": [2], "dtype": "torch.int64"}], "constant tensor"),
        ("torch.add", [{"node": "x"}, {"node": "gone"}], "gone"),
        ("torch.add", [{"node": "x"}, "<my.Type>"], "not recorded"),
    ],
)
def test_what_no_script_can_hold_says_why(target: str, args: list[Any], reason: str) -> None:
    graph = record(target, args)
    with pytest.raises(NotReproducible, match=reason):
        Program.of(graph, ["call"])
    repros = written(graph, denied=[target])
    assert not repros.scripts and re.search(reason, str(repros))


HALF = {"_target_": "inductor_debug.stages.rules.kernel_limits.batch", "multiple": 4}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Rule("memory_peak", value=8), "what the rule memory_peak measures is no property of a tensor"),
        (Rule("custom", value=HALF), "what the rule custom measures is no property of a tensor"),
    ],
)
def test_what_no_script_can_measure_has_none(rule: Rule, reason: str) -> None:
    """A script that shows the same tensor again would show nothing of the rule."""
    x, w = torch.randn(3, 4, 8, 8), torch.randn(2, 4, 3, 3)
    repros = written(aten_graph(F.conv2d, x, w), rules=[rule])
    assert not repros.scripts and repros.without and reason in str(repros)


def test_names_that_python_keeps_are_no_variables(tmp_path: Path) -> None:
    x = NodeRecord("torch", "placeholder", "torch", outputs=[TensorRecord([4], "float32", [1], "cpu")])
    call = NodeRecord("lambda", "call_function", "aten.sin.default", [{"node": "torch"}], inputs=["torch"],
                      outputs=x.outputs)  # fmt: skip
    graph = GraphRecord("g0.forward", "forward", [x, call])
    (script,) = reproduced(written(graph, denied=["aten.sin"]), tmp_path)
    assert "lambda_ = torch.ops.aten.sin.default(torch_)" in script.text


def test_a_message_with_quotes_and_braces_does_no_harm(tmp_path: Path) -> None:
    graph = record("aten.sin.default", [{"node": "x"}], kind="forward", module='a"""b\\{c}')
    reproduced(written(graph, denied=["aten.sin"]), tmp_path)
