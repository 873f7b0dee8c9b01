"""The stage: its files, its part of the summary, its verdict and its words; advice and the parts it is read from."""

import csv
import io
import json
from typing import Any

import pytest
import torch
from capture_models import NoTensors, case_of
from guard_models import Plain, build_fixed, build_masked

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.guards import Guard
from inductor_debug.stages.artifacts.records import DynamicShapes
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.guards import suggestions
from inductor_debug.stages.guards.comparison import compare_guards
from inductor_debug.stages.guards.config import GuardsConfig
from inductor_debug.stages.guards.records import CompiledFrame
from inductor_debug.stages.guards.stage import GuardsStage
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.torch_internals.break_text import BreakKind, parse_break
from inductor_debug.stages.torch_internals.guard_text import FailureKind, without_counters

MASKED = f"{build_masked.__module__}.build_masked"
FIXED = f"{build_fixed.__module__}.build_fixed"
FILES = ["guards/breaks.csv", "guards/guards.json", "guards/recompiles.csv", "guards/variations.csv"]


def run(case: Any = None, target: str = FIXED, **options: Any) -> tuple[StageResult, MemoryArtifacts]:
    model = ModelConfig("small", {"_target_": target}, batch_size=4, sequence_length=16)
    artifacts = MemoryArtifacts()
    live = {"compiled": object()} | ({} if case is None else {"case": case})
    context = StageContext(Settings(model, backend=BackendConfig("eager", "eager")), artifacts, live=live)
    stage = GuardsStage(GuardsConfig(**options))
    stage.check(context)
    result = stage.run(context)
    assert "compiled" not in context.live  # Dynamo has forgotten it
    artifacts.add(result)
    return result, artifacts


@pytest.fixture(scope="module")
def masked() -> tuple[StageResult, MemoryArtifacts]:
    return run(target=MASKED, vary=["batch", "length"])


def rows(artifacts: MemoryArtifacts, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(artifacts.read_text(f"guards/{name}.csv"))))


def test_every_file_is_there_and_strict(masked: tuple[StageResult, MemoryArtifacts]) -> None:
    result, artifacts = masked
    assert artifacts.names() == FILES and result.status == "passed"
    stored = json.loads(artifacts.read_text("guards/guards.json"), parse_constant=lambda text: pytest.fail(text))
    assert [graph["graph"] for graph in stored["graphs"]] == ["g0.dynamo"]
    assert stored["policies"]["dynamic"]["dynamic"] is True
    assert stored["graphs"][0]["dynamic_shapes"]["kept"] == len(stored["graphs"][0]["guards"]) - 2
    assert files.GUARDS.read(artifacts) == result.artifacts["guards/guards.json"]
    assert list(stored["recompiles"][0])[:4] == ["variation", "step", "policy", "compile_id"]


def test_keyword_inputs_in_a_dict_are_varied_by_building_anew(masked: tuple[StageResult, MemoryArtifacts]) -> None:
    table = {(row["variation"], row["step"]): row for row in rows(masked[1], "variations")}
    first = table["length", "1"]
    assert first["change"] == "inputs.tokens [4, 16] → [4, 8], inputs.mask [4, 16] → [4, 8]"
    assert (first["established_by"], first["eager"]) == ("built with model.sequence_length=8", "accepted")
    for kind in ("batch", "length"):
        assert [table[kind, "1"][policy] for policy in ("static", "automatic", "dynamic")] == [
            "recompiled", "recompiled", "reused"
        ]  # fmt: skip
        assert table[kind, "2"]["automatic"] == "reused"


def test_the_guard_that_failed_is_named_with_its_variation(masked: tuple[StageResult, MemoryArtifacts]) -> None:
    found = [row for row in rows(masked[1], "recompiles") if row["policy"] == "automatic"]
    assert [(row["variation"], row["guard"]) for row in found] == [
        ("batch", "tensor 'inputs['mask']' size mismatch at index 0. expected 4, actual 2"),
        ("length", "tensor 'inputs['mask']' size mismatch at index 1. expected 16, actual 8"),
    ]
    assert found[1]["suggestion"].startswith("torch._dynamo.mark_dynamic(inputs['mask'], 1)")


def test_the_summary_and_the_message(masked: tuple[StageResult, MemoryArtifacts]) -> None:
    counts = masked[0].summary["guards"]
    again = {"repeat": [], "batch": ["static", "automatic"], "length": ["static", "automatic"]}
    assert counts.recompiling == again
    assert (counts.graphs, counts.breaks, counts.variations) == (1, 0, 4)
    assert (counts.recompiled, counts.not_established) == (6, 0)
    assert counts.dynamic_shapes == DynamicShapes(kept=counts.guards - 2, relaxed=2, gone=0)
    assert masked[0].message == (
        "It recompiles when these vary: batch (static, automatic); length (static, automatic).\n"
        f"1 graph with {counts.guards} guards, no graph break, dynamic shapes relax 2 guards and remove 0."
    )


def test_the_report_shows_it(masked: tuple[StageResult, MemoryArtifacts]) -> None:
    settings = Settings(ModelConfig("small"))
    told, figures = masked[0].message.split("\n")
    stages = [{"name": "guards", "status": masked[0].status, "message": masked[0].message}]
    summary = {"run": {}, "verdict": "passed", "stages": stages}
    stored = MemoryArtifacts(masked[1].content | {"summary.json": summary})
    report = ReportStage(ReportConfig()).run(StageContext(settings, stored))
    html, data = report.artifacts["report/report.html"], report.artifacts["report/report.json"]
    assert "What makes it compile again?" in html and "expected 16, actual 8" in html
    assert data["guards"]["graphs"][0]["relaxed"] == 2
    assert told.startswith("It recompiles when these vary: batch (static") and told in data["findings"]
    assert f"<li>{figures}</li>" in html


def test_no_graph_is_not_established() -> None:
    result, _ = run(case_of(NoTensors(), torch.ones(3)), vary=["contiguity"])
    assert result.status == "failed" and result.message == (
        "What makes it compile again is not established: torch.compile made no graph of this model."
    )


def test_no_variation_is_not_established() -> None:
    result, artifacts = run(case_of(Plain(), torch.ones(6, 4)), vary=["length"])
    said = "What makes it compile again is not established: no variation could be called.\n"
    assert result.status == "failed" and result.message.startswith(said)
    assert [row["static"] for row in rows(artifacts, "variations")] == ["reused", "not_established"]


def test_guards_alone_can_be_asked_for() -> None:
    result, _ = run(case_of(Plain(), torch.ones(6, 4)), vary=[], compiler="backend")
    assert result.status == "passed" and result.message.startswith("Nothing that was varied recompiles.\n")


def test_named_dimensions_come_nested_from_the_command_line() -> None:
    case = case_of(Plain(), torch.ones(6, 4))
    result, artifacts = run(case, vary=["batch"], dims={"batch": {"x": 0}})
    assert result.status == "passed"
    assert rows(artifacts, "variations")[1]["change"] == "x [6, 4] → [3, 4]"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"vary": ["depth"]}, "stages.guards.vary: got 'depth'; valid: "),
        ({"compiler": "eager"}, "stages.guards.compiler: got 'eager'; valid: aot_eager, backend"),
        ({"dims": {"batch": {"x": "first"}}}, "each with the number of a dimension"),
        ({"dims": {"batch": 0}}, "stages.guards.dims.batch: got 0"),
    ],
)
def test_a_wrong_option_is_one_message(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        run(case_of(Plain(), torch.ones(6, 4)), **options)
    assert told in str(caught.value) and "Try: " in str(caught.value)


BRANCH = """Data-dependent branching
  Explanation: Detected data-dependent branching.
      It goes on.
  Hint: This graph break is fundamental - it is unlikely that Dynamo will ever be able to trace through your code.
  Hint: Use `torch.cond` to express dynamic control flow.
  Developer debug context: attempted to jump
 For more details about this graph break, please visit: https://example.org/gb0170.html"""


def test_a_breaks_message_is_read_in_its_parts() -> None:
    parts = parse_break(BRANCH)
    assert (parts.reason, parts.explanation) == (
        "Data-dependent branching", "Detected data-dependent branching. It goes on."
    )  # fmt: skip
    assert len(parts.hints) == 2 and parts.hints[1].startswith("Use `torch.cond`")
    assert parts.documentation == "https://example.org/gb0170.html"


@pytest.mark.parametrize(
    ("detail", "begins"),
    [
        (BRANCH, "Compute both sides and choose with torch.where"),
        ("Odd thing\n  Explanation: odd.\n  Hint: Please report an issue to PyTorch.\n  Hint: Turn it.", "Turn it."),
        ("Odd thing\n  Explanation: odd.\n  Hint: Please report an issue to PyTorch.", suggestions.NO_HINT),
        ("Odd thing", suggestions.NO_HINT),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "Keep the value a tensor"),
    ],
)
def test_each_break_has_a_suggestion(detail: str, begins: str) -> None:
    assert suggestions.for_break(detail).startswith(begins)


def test_no_kind_is_without_advice() -> None:
    assert set(suggestions.KNOWN_BREAKS) == set(BreakKind)
    assert set(suggestions._KNOWN_FAILURES) == set(FailureKind)


@pytest.mark.parametrize(
    ("guard", "dynamic", "part"),
    [
        ("tensor 'x' size mismatch at index 1. expected 8, actual 6", False, "mark_dynamic(x, 1)"),
        ("tensor 'x' size mismatch at index 1. expected 8, actual 6", True, "A constant with dynamic=True too"),
        ("tensor 'x' size mismatch at index 0. expected 1, actual 6", True, "mark_unbacked(x, 0)"),
        ("tensor 'd['k']' stride mismatch at index 0. expected 1, actual 6", None, "d['k'].contiguous()"),
        ("tensor 'x' dtype mismatch. expected Float, actual BFloat16", None, "one dtype"),
        ("self.calls == 0", None, "allow_unspec_int_on_nn_module"),
        ("2 <= L['x'].size()[0]", None, "symbolic size"),
        ("something new", None, ""),
    ],
)
def test_each_kind_of_failure_has_advice(guard: str, dynamic: bool | None, part: str) -> None:
    found = suggestions.for_recompile(guard, dynamic)
    assert part in found and bool(found) == bool(part)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("G['_139712345678901_c6'].Tensor", "G['_139798765432109_c10'].Tensor"),
        ("G['__object_139712345678901_c6']", "G['__object_139798765432109_c10']"),
        ("G['__builtins_dict___6']", "G['__builtins_dict___10']"),
    ],
)
def test_what_each_compilation_numbers_anew_is_left_out_of_a_guards_name(first: str, second: str) -> None:
    """An object's address, and the count of compilations: else a guard would seem gone that is there."""
    assert without_counters(first) == without_counters(second) != first
    assert without_counters("G['layer_12_c10'].weight") == "G['layer_12_c10'].weight"


def test_guards_are_kept_relaxed_or_gone() -> None:
    def frame(*guards: Guard) -> CompiledFrame:
        return CompiledFrame("0/0", "g0.dynamo", "forward", "forward", "net.py", 1, list(guards))

    def number(code: str, type: str = "CONSTANT_MATCH", name: str = "L['n']") -> Guard:
        return Guard(type, name, "local", [code], None)

    static = frame(
        number("L['n'] == 3"),
        number("L['m'] == 2", name="L['m']"),
        number("L['eps'] == 0.1", name="L['eps']"),
        number("len(L['a']) == 2", "SEQUENCE_LENGTH", "L['a']"),
    )
    dynamic = frame(
        number("type of n is int", "TYPE_MATCH"),
        number("L['eps'] == 0.1", "SHAPE_ENV", ""),
        number("L['a'].size()[0] == 2", "SHAPE_ENV", ""),
    )
    compare_guards(static, dynamic)
    assert [(guard.name, guard.dynamic, guard.becomes) for guard in static.guards] == [
        ("L['n']", "relaxed", ["type of n is int"]),
        ("L['m']", "gone", []),
        ("L['eps']", "kept", []),
        ("L['a']", "gone", []),
    ]
    assert static.added == ["L['a'].size()[0] == 2"]
    assert static.changes() == {"relaxed": 1, "gone": 2, "kept": 1}


class Numbers(torch.nn.Module):
    """Takes float32 alone, a number and a flag."""

    def forward(self, x: torch.Tensor, scale: float = 1.0, flag: bool = True) -> torch.Tensor:
        assert x.dtype == torch.float32
        return x * scale if flag else x


def test_what_was_not_varied_and_what_the_model_refuses_are_told() -> None:
    result, _ = run(case_of(Numbers(), torch.ones(4, 3), 2.0, flag=True), vary=["dtype"])
    told, figures, unvaried = result.message.split("\n")
    assert told == "What makes it compile again is not established: no variation could be called."
    assert "1 variation that the model itself refuses" in figures and "not established" not in figures
    assert unvaried == "Not varied: scale, flag (no tensor; its guards are in guards.json)."


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ({"nosuch": 0}, "stages.guards.dims.batch: got 'nosuch'; valid: "),
        ({"input": 9}, "stages.guards.dims.batch.input: got 9; valid: 0 to "),
    ],
)
def test_dimensions_that_the_case_does_not_have_are_told_before_any_stage_runs(
    named: dict[str, int], told: str
) -> None:
    case = Case("net", torch.nn.Linear(4, 4), (torch.ones(2, 4),), {}, "inference", torch.float32, torch.device("cpu"))
    stage = GuardsStage(GuardsConfig(vary=["batch"], dims={"batch": named}))
    with pytest.raises(ConfigurationError) as caught:
        stage.check(StageContext(Settings(ModelConfig("net")), MemoryArtifacts(), {"case": case}))
    assert told in str(caught.value)
