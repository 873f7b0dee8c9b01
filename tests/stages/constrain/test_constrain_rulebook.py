"""What a run is checked against: the profile that ``accel`` names, the backend's capabilities, and its own check."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, Rule, Waiver
from inductor_debug.stages.accelerators.profile import Profile, completed, read_profile, validate_profile
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.constrain.config import ConstrainConfig
from inductor_debug.stages.constrain.rulebook import rulebook
from inductor_debug.stages.constrain.stage import ConstrainStage
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.rules.violations import Violations
from inductor_debug.stages.settings import BackendConfig, Settings


class Chip(AcceleratorAdapter):
    """Declares an alignment of 8."""

    name = "chip"

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    def capabilities(self) -> Profile:
        return Profile("chip", self.strict, (Rule("alignment", value=8),))  # the other fields are filled in

    def compile(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return gm.forward


class OwnCheck(Chip):
    """Refuses every addition, in an error that its profile knows nothing of."""

    def check(self, graph: GraphRecord) -> Violations:
        found = super().check(graph)
        first = found.rows[0]
        rows = [
            replace(first, node=node.name, target=node.target, rule="custom", severity="error")
            for node in graph.nodes
            if node.target == "aten.add.Tensor"
        ]
        return replace(found, rows=(*found.rows, *rows))


class OnlyACheck(AcceleratorAdapter):
    """No capability, and nothing to object to."""

    name = "only_a_check"

    def check(self, graph: GraphRecord) -> Violations:
        return Violations()

    def compile(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return gm.forward


class WrongTypes(OnlyACheck):
    def capabilities(self) -> Any:
        return AccelConfig(alignment=8)


@pytest.fixture(autouse=True)
def faulty_adapters_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))


def graphs(width: int = 12) -> list[GraphRecord]:
    """One addition of that width, as Dynamo's and as AOTAutograd's graph."""
    tensor = TensorRecord([2, width], "float32", [width, 1], "cpu")
    x = NodeRecord("x", "placeholder", "x", outputs=[tensor], role="input")
    add = NodeRecord("add", "call_function", "aten.add.Tensor", [{"node": "x"}], inputs=["x"], outputs=[tensor])
    return [GraphRecord(f"g0.{kind}", kind, [x, add]) for kind in ("dynamo", "forward")]


def settings(adapter: str | type, accel: AccelConfig | None = None, **options: Any) -> Settings:
    path = adapter if isinstance(adapter, str) else f"{__name__}.{adapter.__name__}"
    return Settings(ModelConfig(), accel or AccelConfig(), BackendConfig("x", path, options))


def run(chosen: Settings, width: int = 12) -> StageResult:
    artifacts = MemoryArtifacts({f"capture/graphs/{graph.id}.json": graph.to_json() for graph in graphs(width)})
    return ConstrainStage(ConstrainConfig(repros=0)).run(StageContext(chosen, artifacts))


def rules(result: StageResult) -> list[tuple[str, str]]:
    return [(row.rule, row.severity) for row in result.artifacts["constrain/violations.csv"].itertuples()]


def test_without_a_profile_the_backends_capabilities_are_checked() -> None:
    result = run(settings(Chip))
    assert result.status == "passed" and set(rules(result)) == {("alignment", "warning")}
    told, *figures = result.message.split("\n")
    assert told == (
        "The model does not fit the profile chip: 2 violations of the rule alignment. The last dimension of "
        "activations and parameters must be a multiple of 8 elements, or 1. The profile is not strict, so the run "
        "goes on."
    )
    assert "The rules are those that the backend chip declares (accel=none)." in figures
    found = result.summary["violations"]
    assert (found.profile, found.declared_by, found.total) == ("chip", "backend", len(rules(result)))


def test_the_backend_says_whether_it_is_strict_unless_accel_does() -> None:
    assert run(settings(Chip, strict=True)).status == "failed"
    assert run(settings(Chip, AccelConfig(strict=False), strict=True)).status == "passed"
    assert run(settings(Chip, AccelConfig(strict=True))).status == "failed"


def test_a_field_of_accel_edits_what_the_backend_declares() -> None:
    result = run(settings(Chip, AccelConfig(alignment=4)))
    assert rules(result) == [] and "declares (accel=none, edited by accel.*)" in result.message


def test_a_named_profile_takes_the_place_of_the_capabilities() -> None:
    result = run(settings(Chip, AccelConfig(name="mine", alignment=4)))
    assert rules(result) == []
    assert "mine took the place of the rules that the backend chip declares." in result.message.splitlines()
    assert result.summary["violations"].declared_by == "accel"


def test_an_own_check_is_asked_beside_the_profile_and_counted_once() -> None:
    result = run(settings(OwnCheck))
    plain = run(settings(Chip))
    assert rules(result) == [*rules(plain), ("custom", "error")]
    assert result.status == "failed" and "The backend chip checked as well." in result.message
    told = (
        ". The backend calls it an error, so stages that compile are left out. To run them anyway, add to the command: "
    )
    assert told in result.message


def test_an_own_check_is_asked_whatever_profile_is_named() -> None:
    accel = AccelConfig(name="mine", alignment=4)
    assert rules(run(settings(OwnCheck, accel))) == [("custom", "error")]
    lenient = run(settings(OwnCheck, replace(accel, strict=False)))
    assert (rules(lenient), lenient.status) == ([("custom", "warning")], "passed")


def test_a_waiver_covers_what_an_own_check_found(caplog: pytest.LogCaptureFixture) -> None:
    waived = AccelConfig(name="mine", waivers=[Waiver(rule="custom*", reason="known", target="aten.add*")])
    assert rules(run(settings(OwnCheck, waived))) == [("custom", "waived")]
    assert "matches no finding" not in caplog.text


def test_an_own_check_alone_is_a_check() -> None:
    result = run(settings(OnlyACheck))
    assert (result.status, result.summary["violations"].total) == ("passed", 0)
    told, *figures = result.message.split("\n")
    assert told == "The model fits the profile only_a_check: no rule is broken."
    assert "nothing was checked" not in result.message.lower()
    assert "The backend only_a_check checked as well." in figures


def test_a_backend_that_declares_nothing_leaves_the_run_unchecked() -> None:
    result = run(settings("faulty_adapters.CrashInCompile"))
    assert result.message == "Nothing was checked: the profile none has no rules."
    assert result.summary["violations"].total is None


def test_a_planted_fault_keeps_the_inner_adapters_rules() -> None:
    inner = {"inner": f"{__name__}.OwnCheck", "node": "add", "fault": "scale"}
    assert ("custom", "error") in rules(run(settings("inductor_debug.stages.backends.planted.PlantedFault", **inner)))


def test_the_mock_is_checked_against_the_profile_that_it_enforces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_ALIGNMENT", "16")
    assert rulebook(settings("mock")).profile.name == "mock"
    assert rules(run(settings("aot_mock")))[0][0] == "alignment"
    assert rulebook(settings("mock", AccelConfig(name="mine", alignment=4))).note == ""


def test_capabilities_of_another_type_are_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match=r"capabilities\(\).*gave AccelConfig; valid: a Profile of stages"):
        rulebook(settings(WrongTypes))


def test_a_base_keeps_its_name_rules_and_waivers() -> None:
    waiver = Waiver(rule="dtype", reason="known")
    base = Profile("chip", True, (Rule("alignment", value=8),), (waiver,))
    edited = validate_profile(AccelConfig(alignment=16, dtypes=["float32"]), base=base)
    assert (edited.name, edited.strict, edited.waivers) == ("chip", True, (waiver,))
    assert [(rule.rule, rule.value) for rule in edited.rules] == [("alignment", 16), ("dtype", ["float32"])]
    assert edited.of("alignment")[0].effect == "pad"


def test_a_backend_of_ours_that_declares_nothing_needs_no_torch() -> None:
    script = (
        "import sys\nfrom inductor_debug.stages.constrain.rulebook import rulebook\n"
        "from inductor_debug.stages.settings import ModelConfig, Settings\n"
        "rulebook(Settings(ModelConfig()))\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_the_backend_declares_is_stored_for_a_later_check() -> None:
    stored = run(settings(OwnCheck, AccelConfig(alignment=4))).artifacts[files.DECLARED.path]
    assert stored["own_check"] is True
    read = read_profile(json.loads(encode(files.DECLARED.path, stored)))
    assert read == completed(OwnCheck().capabilities())
    assert files.DECLARED.path not in run(settings(OwnCheck, AccelConfig(name="mine", alignment=4))).artifacts
    assert files.DECLARED.path not in run(settings("faulty_adapters.CrashInCompile")).artifacts
