"""Guards, breaks and recompilations of small models against what can be derived by hand."""

from typing import Any

import guard_models
import pytest
import torch
from capture_models import case_of, line_of
from guard_models import WITHOUT_CODE, Added, Branching, Counting, Picky, Plain, Rolled, Two

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts.guards import Guard
from inductor_debug.stages.artifacts.records import DynamicShapes
from inductor_debug.stages.guards import tables
from inductor_debug.stages.guards.inspection import inspect_guards
from inductor_debug.stages.guards.records import CompiledFrame, GuardReport

ROWS = {"batch": {"x": 0}}


@pytest.fixture(scope="module")
def plain() -> GuardReport:
    return inspect_guards(Plain(), (torch.randn(6, 4),), dims=ROWS)


@pytest.fixture(scope="module")
def two() -> GuardReport:
    return inspect_guards(Two(), (torch.randn(6, 4),), {"scale": torch.ones(8)}, vary=["batch"], dims=ROWS)


@pytest.fixture(scope="module")
def rolled() -> GuardReport:
    return inspect_guards(Rolled(), (torch.randn(6, 4), 3), {"scale": 0.5}, vary=["batch"], dims=ROWS)


def guard_on(frame: CompiledFrame, name: str, type: str = "TENSOR_MATCH") -> Guard:
    found = [guard for guard in frame.guards if (guard.name, guard.type) == (name, type)]
    assert len(found) == 1, [(guard.type, guard.name) for guard in frame.guards]
    return found[0]


def outcomes(report: GuardReport, kind: str, step: int = 1) -> list[str]:
    """Under static, automatic and dynamic sizes."""
    item = next(item for item in report.variations if (item.kind, item.step) == (kind, step))
    return [item.outcome(policy) for policy in ("static", "automatic", "dynamic")]


def failures(report: GuardReport, kind: str, policy: str, step: int = 1) -> list[tuple[str, str, str]]:
    rows = tables.recompiles(report)
    return [(row.guard, row.failed, row.compile_id) for row in rows
            if (row.variation, row.policy, row.step) == (kind, policy, step)]  # fmt: skip


def test_a_tensors_guard_says_what_it_holds_and_where_it_comes_from(plain: GuardReport) -> None:
    (frame,) = plain.graphs
    guard = guard_on(frame, "L['x']")
    assert (frame.graph, frame.compile_id, frame.function) == ("g0.dynamo", "0/0", "forward")
    assert (guard.size, guard.stride) == ([6, 4], [4, 1])
    assert guard.code[0] == (
        "check_tensor(L['x'], Tensor, torch.float32, device='cpu', requires_grad=False, size=[6, 4], stride=[4, 1])"
    )
    assert guard.source == f"{guard_models.__file__}:{line_of(Plain(), 'linear')}"


def test_dynamic_shapes_relax_the_free_dimension_alone(plain: GuardReport) -> None:
    (frame,) = plain.graphs
    relaxed = [guard for guard in frame.guards if guard.dynamic != "kept"]
    assert [(guard.name, guard.dynamic) for guard in relaxed] == [("L['x']", "relaxed")]
    assert relaxed[0].becomes == ["size=[None, 4], stride=[4, 1]", "2 <= L['x'].size()[0]"]
    assert frame.added == ["2 <= L['x'].size()[0]"]
    assert plain.changes() == DynamicShapes(kept=len(frame.guards) - 1, relaxed=1, gone=0)


def test_dynamic_shapes_relax_a_number_to_its_type(rolled: GuardReport) -> None:
    (frame,) = rolled.graphs
    shift, scale = (guard_on(frame, f"L['{name}']", "CONSTANT_MATCH") for name in ("shift", "scale"))
    assert (shift.code, shift.dynamic) == (["L['shift'] == 3"], "relaxed")
    assert shift.becomes == ["___check_type_id(L['shift'], …), type=<class 'int'>"]
    assert (scale.code, scale.dynamic) == (["L['scale'] == 0.5"], "relaxed")
    assert "___check_type_id(L['scale'], …), type=<class 'float'>" in scale.becomes
    assert rolled.changes() == DynamicShapes(kept=len(frame.guards) - 3, relaxed=3, gone=0)
    assert outcomes(rolled, "batch", 1) == ["recompiled", "recompiled", "reused"]


@pytest.mark.parametrize("name", ["plain", "two", "rolled"])
def test_every_guard_has_its_condition_but_for_the_types_that_torch_tells_none_of(
    name: str, request: pytest.FixtureRequest
) -> None:
    report: GuardReport = request.getfixturevalue(name)
    for _, _, call in report.every_call():
        for frame in call.frames:
            without = {guard.type for guard in frame.guards if not guard.code}
            assert "GRAD_MODE" in without and without <= WITHOUT_CODE.keys()


def test_a_second_batch_recompiles_until_its_size_is_symbolic(plain: GuardReport) -> None:
    assert outcomes(plain, "batch", 1) == ["recompiled", "recompiled", "reused"]
    assert outcomes(plain, "batch", 2) == ["recompiled", "reused", "reused"]
    size = "tensor 'x' size mismatch at index 0. expected 6, actual {}"
    assert failures(plain, "batch", "automatic") == [(size.format(3), "0/0", "0/1")]
    assert (size.format(4), "0/0", "0/2") in failures(plain, "batch", "static", 2)
    assert failures(plain, "batch", "dynamic") == []


def test_the_recompiled_graph_shows_its_relaxed_condition(plain: GuardReport) -> None:
    made = [item for item in tables.content(plain).recompiled if item.call == "batch 1, automatic"]
    assert [(item.compile_id, item.graph, item.first) for item in made] == [("0/1", "g1.dynamo", "0/0")]
    assert any("size=[None, 4]" in code for code in made[0].new) and "2 <= L['x'].size()[0]" in made[0].new
    assert any("size=[6, 4]" in code for code in made[0].gone)


def test_a_layout_and_a_dtype_recompile_whatever_the_sizes_do(plain: GuardReport) -> None:
    assert outcomes(plain, "contiguity") == ["recompiled"] * 3
    assert outcomes(plain, "dtype", 2) == ["recompiled"] * 3
    for policy in ("static", "automatic", "dynamic"):
        stride = "tensor 'x' stride mismatch at index 0. expected 4, actual 1"
        assert failures(plain, "contiguity", policy) == [(stride, "0/0", "0/1")]
        assert failures(plain, "dtype", policy, 2) == [
            ("tensor 'x' dtype mismatch. expected Float, actual BFloat16", "0/0", "0/1")
        ]


def test_what_the_model_itself_refuses_is_no_finding(plain: GuardReport) -> None:
    item = next(item for item in plain.variations if (item.kind, item.step) == ("dtype", 1))
    assert (item.eager, item.calls) == ("refused", {})
    assert item.message.startswith("RuntimeError: mat1 and mat2 must have the same dtype")
    assert outcomes(plain, "dtype", 1) == ["refused_by_model"] * 3
    assert plain.refusals() == []


def test_a_length_that_nothing_tells_is_not_established(plain: GuardReport) -> None:
    assert outcomes(plain, "length") == ["not_established"] * 3
    assert any("nothing tells which dimension is the length" in note for note in tables.not_established(plain))


def test_the_same_inputs_again_are_served(plain: GuardReport) -> None:
    assert outcomes(plain, "repeat") == ["reused"] * 3


def test_guards_belong_to_the_graph_that_needs_them(two: GuardReport) -> None:
    first, second = two.graphs
    assert [(frame.graph, frame.compile_id) for frame in two.graphs] == [("g0.dynamo", "0/0"), ("g1.dynamo", "1/0")]
    assert guard_on(first, "L['x']").size == [6, 4]
    assert guard_on(second, "L['scale']").size == [8]
    assert not [guard for guard in first.guards if "scale" in guard.name or "last" in guard.name]
    assert not [guard for guard in second.guards if guard.name == "L['x']" or "first" in guard.name]
    assert guard_on(second, "L['hidden']").source.endswith(f":{line_of(Two(), 'last')}")


def test_a_break_names_its_graph_its_line_and_what_to_do(two: GuardReport) -> None:
    (row,) = tables.breaks(two)
    assert (row.graph, row.kind, row.line) == ("g0.dynamo", "break", line_of(Two(), "print"))
    assert row.reason == "Failed to trace builtin operator" and "`print`" in row.explanation
    assert row.suggestion.startswith("Remove the print") and row.hints
    assert row.documentation.startswith("https://")
    assert row.seen_in[:3] == ["first call, automatic", "first call, static", "first call, dynamic"]


def test_each_graph_recompiles_for_its_own_guard(two: GuardReport) -> None:
    rows = [row for row in tables.recompiles(two) if (row.policy, row.step) == ("automatic", 1)]
    assert [(row.failed_graph, row.graph, row.guard.split("'")[1]) for row in rows] == [
        ("g0.dynamo", "g2.dynamo", "x"),
        ("g1.dynamo", "g3.dynamo", "hidden"),
    ]
    assert [int(row.source.rpartition(":")[2]) for row in rows] == [line_of(Two(), "first"), line_of(Two(), "last")]


def test_a_limit_is_told_with_its_option_and_ends_the_reuse() -> None:
    with torch._dynamo.config.patch(recompile_limit=1):
        report = inspect_guards(Plain(), (torch.randn(6, 4),), vary=["batch"], dims=ROWS)
    assert outcomes(report, "batch", 1) == ["limit_hit", "limit_hit", "reused"]
    assert outcomes(report, "batch", 2) == ["limit_hit", "limit_hit", "reused"]  # Python runs it: nothing served it
    rows = tables.limits(report)
    assert [(row.option, row.value, row.call) for row in rows] == [
        ("torch._dynamo.config.recompile_limit", 1, "batch 1, static"),
        ("torch._dynamo.config.recompile_limit", 1, "batch 1, automatic"),
    ]
    limited = [row for row in tables.recompiles(report) if row.limit]
    assert {(row.limit, row.graph) for row in limited} == {("torch._dynamo.config.recompile_limit=1", None)}
    assert tables.breaks(report) == []
    assert tables.summary(report).limits_hit == 4


def test_a_models_own_counter_recompiles_the_same_inputs_and_the_case_is_left_as_it_was() -> None:
    case = case_of(Counting(), torch.randn(6, 4), mode="training")
    case.args[0].requires_grad_()
    case.module.norm.weight.grad = torch.full((4,), 7.0)
    before = {name: tensor.clone() for name, tensor in case.module.state_dict().items()}
    inputs, generator = case.args[0].detach().clone(), torch.get_rng_state()
    report = inspect_guards(case, vary=["dtype"])
    assert outcomes(report, "repeat") == ["recompiled"] * 3
    assert failures(report, "repeat", "dynamic") == [("self.calls == 0", "0/0", "0/1")]
    assert "dtype mismatch" in failures(report, "dtype", "dynamic", 2)[0][0]  # the counter is not blamed on it
    assert case.module.calls == 0 and case.module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in case.module.state_dict().items())
    assert case.module.norm.weight.dtype == torch.float32 and case.args[0].dtype == torch.float32
    assert torch.equal(case.args[0], inputs) and case.args[0].grad is None
    assert torch.equal(case.module.norm.weight.grad, torch.full((4,), 7.0))
    assert torch.equal(torch.get_rng_state(), generator)


def test_every_call_draws_the_same_numbers() -> None:
    drawn = []

    @torch._dynamo.disable
    def noted(x: torch.Tensor) -> torch.Tensor:
        drawn.append(torch.rand(()).item())
        return x

    class Noting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return noted(x).sin()

    report = inspect_guards(Noting(), (torch.randn(3),), vary=[])
    assert len(drawn) == 1 + 2 * 3 and len(set(drawn)) == 1
    (row,) = tables.breaks(report)
    assert row.suggestion.startswith("Let Dynamo trace the function")


def test_a_size_that_the_code_needs_is_kept_and_its_change_refused() -> None:
    report = inspect_guards(Picky(), (torch.randn(4, 4),), vary=["batch"], dims=ROWS)
    assert outcomes(report, "batch") == ["refused_by_model"] * 3
    assert guard_on(report.graphs[0], "L['x']").dynamic == "kept"  # both sizes are 4, so one symbol, which is held to 4


def test_a_condition_on_symbolic_sizes_fails_with_its_line() -> None:
    report = inspect_guards(Branching(), (torch.randn(12, 5),), vary=["batch"], dims=ROWS)
    (row,) = [row for row in tables.recompiles(report) if row.policy == "dynamic"]
    assert (row.step, row.guard) == (1, "11 <= x.size()[0]")
    assert row.source.endswith(f"guard_models.py:{line_of(Branching(), 'rows')}")
    assert "symbolic size" in row.suggestion
    assert "11 <= L['x'].size()[0]" in report.graphs[0].added


def test_what_only_the_compiled_model_refuses_is_a_finding() -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        if any(isinstance(item, torch.Tensor) and item.shape[:1] == (3,) for item in inputs):
            raise NotImplementedError("no three rows")
        return gm.forward

    report = inspect_guards(Plain(), (torch.randn(6, 4),), vary=["batch"], dims=ROWS, backend=backend)
    assert outcomes(report, "batch", 1)[0] == "refused_by_compiler"
    assert outcomes(report, "batch", 2)[0] == "recompiled"
    policy, item, call = report.refusals()[0]
    assert (policy, item.kind, call.message) == ("static", "batch", "NotImplementedError: no three rows")


def test_a_policy_that_can_not_compile_is_a_finding_and_compares_nothing() -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        if any(isinstance(item, torch.SymInt) for item in inputs):
            raise NotImplementedError("no symbols")
        return gm.forward

    report = inspect_guards(Plain(), (torch.randn(6, 4),), vary=["contiguity"], backend=backend)
    assert outcomes(report, "contiguity") == ["recompiled", "refused_by_compiler", "not_established"]
    assert any("with dynamic sizes: the first call raised" in note for note in tables.not_established(report))
    assert report.bases["dynamic"].outcome == "refused_by_compiler" and "no symbols" in report.bases["dynamic"].message
    assert "no symbols" in report.graphs[0].not_established
    assert report.changes() == DynamicShapes()


def test_one_tensor_as_two_arguments_stays_one() -> None:
    x = torch.randn(6, 5)
    report = inspect_guards(Added(), (x, x), vary=["batch", "contiguity"], dims={"batch": {"x": 0, "y": 0}})
    assert outcomes(report, "batch") == ["recompiled", "recompiled", "reused"]
    assert outcomes(report, "contiguity") == ["recompiled"] * 3
    assert all(
        "is" not in guard.split() and "alias" not in guard for guard, _, _ in failures(report, "batch", "static")
    )
    kinds = {guard.type for guard in report.graphs[0].guards}
    assert "DUPLICATE_INPUT" in kinds and "NO_TENSOR_ALIASING" not in kinds


def test_two_tensors_are_held_to_be_two() -> None:
    report = inspect_guards(Added(), (torch.randn(6, 5), torch.randn(6, 5)), vary=[])
    (guard,) = [guard for guard in report.graphs[0].guards if guard.type == "NO_TENSOR_ALIASING"]
    assert guard.code == ["check_no_aliasing(L['x'], L['y'])"]
    assert guard.dynamic == "kept"


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        ((Plain(), (torch.ones(6, 4),)), {"vary": ["size"]}, "valid: batch, length, dtype, contiguity"),
        ((Plain(), (torch.ones(6, 4),)), {"dims": {"batch": {"z": 0}}}, "valid: x"),
        ((Plain(), (torch.ones(6, 4),)), {"dims": {"batch": {"x": 2}}}, "valid: 0 to 1"),
        ((Plain(), (torch.ones(6, 4),)), {"dims": {"depth": {"x": 0}}}, "valid: length, batch"),
        ((torch.sin, (torch.ones(6, 4),)), {}, "a case or a torch.nn.Module"),
        ((case_of(Plain(), torch.ones(6, 4)), (torch.ones(6, 4),)), {}, "Try: inspect_guards\\(case\\)"),
    ],
)
def test_a_users_mistake_is_one_message(arguments: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        inspect_guards(*arguments, **options)


def test_what_the_model_raises_with_its_own_inputs_is_passed_on() -> None:
    with pytest.raises(ValueError, match="four rows"):
        inspect_guards(Picky(), (torch.randn(3, 4),))
