"""What the stage looks for, of what earlier stages stored."""

from typing import Any

import pytest

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import GuardCounts, StageRecord
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.minify import stage as module
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import Minified
from inductor_debug.stages.minify.known import Known, known_failure
from inductor_debug.stages.minify.stage import MinifyStage
from inductor_debug.stages.settings import Settings

PLACE = {"graph": "g0.forward", "node": "relu", "target": "aten.relu.default", "operations": ["relu"]}
CULPRIT = {"place": PLACE, "kind": "operation", "ratio": 9.0, "slope": None, "call": 0}
LOCALIZED = {"kind": "operation", "method": "observed", "message": "", "culprits": [CULPRIT]}
ERROR = {"side": "test", "type": "CppCompileError", "message": "no",
         "traceback": "Traceback:\n  File\nsubprocess.CalledProcessError: no\n"}  # fmt: skip
PASSED = {"lower": ("passed", ""), "kerneldiff": ("passed", ""), "benchmark": ("passed", "")}


def looked_at(diagnosis: dict[str, Any] | None, earlier: dict[str, tuple[str, str]], **summary: Any) -> Any:
    records = {name: StageRecord(name, status, 1.0, "so", summary, cause=cause)
               for name, (status, cause) in earlier.items()}  # fmt: skip
    stored = {} if diagnosis is None else {files.DIAGNOSIS.path: diagnosis}
    return known_failure(MemoryArtifacts(stored), records)


@pytest.mark.parametrize(
    ("diagnosis", "earlier", "stage", "expected"),
    [
        (None, {}, "", ""),
        (None, {"capture": ("passed", "")}, "", ""),
        ({"verdict": "defect"}, PASSED, "kerneldiff", "defect"),
        ({"verdict": "not_established", "error": ERROR}, PASSED, "kerneldiff", "error CppCompileError"),
        (None, {"lower": ("crashed", "error InductorError CppCompileError")}, "lower", "error CppCompileError"),
        (None, {"lower": ("crashed", "signal 11"), "kerneldiff": ("crashed", "signal 6")}, "kerneldiff", "signal 6"),
        (None, {"lower": ("timed_out", "hang"), "kerneldiff": ("skipped", "")}, "lower", "hang"),
        ({"verdict": "exact"}, PASSED | {"benchmark": ("crashed", "signal 11")}, "benchmark", "signal 11"),
    ],
)
def test_a_failure_that_is_known_is_looked_for(
    diagnosis: dict[str, Any] | None, earlier: dict[str, tuple[str, str]], stage: str, expected: str
) -> None:
    found = looked_at(diagnosis, earlier)
    assert isinstance(found, Known) and (found.stage, found.expected, found.at) == (stage, expected, None)


def test_the_same_inputs_that_are_compiled_again_are_a_storm() -> None:
    guards = StageRecord(
        "guards", "passed", 1.0, "", summary={"guards": GuardCounts(recompiling={"repeat": ["static"]})}
    )
    passed = {name: StageRecord(name, "passed", 1.0, "") for name in PASSED}
    exact = MemoryArtifacts({files.DIAGNOSIS.path: {"verdict": "exact"}})
    found = known_failure(exact, passed | {"guards": guards})
    assert isinstance(found, Known) and (found.stage, found.expected, found.fails) == ("guards", "storm", False)
    assert found.calls > 2 and found.is_it("storm on attribute calls") and not found.is_it("defect")
    other = StageRecord("guards", "passed", 1.0, "", summary={"guards": {"recompiling": {"batch": ["static"]}}})
    assert not isinstance(known_failure(exact, passed | {"guards": other}), Known)


def test_the_operation_at_fault_and_the_draw_that_shows_it_are_known() -> None:
    found = looked_at({"verdict": "defect", "draw": 3, "localized": LOCALIZED}, PASSED)
    assert (found.at, found.draw, found.fails) == (("g0.forward", ["relu"]), 3, True)
    passing = looked_at({"verdict": "within_floor", "localized": LOCALIZED}, PASSED)
    assert passing.at == ("g0.forward", ["relu"]) and not passing.fails


@pytest.mark.parametrize(
    ("diagnosis", "earlier", "status", "message"),
    [
        ({"verdict": "exact"}, PASSED, "passed", "There is nothing to minify: kerneldiff's verdict is exact."),
        (None, {"lower": ("passed", "")}, "skipped",
         "Not established: kerneldiff was not selected, so no failure is known.\nOf the others: lower passed."),
        (None, {"lower": ("passed", ""), "kerneldiff": ("skipped", "")}, "skipped",
         "Not established: kerneldiff was skipped, so no failure is known.\nSo.\n"
         "Of the others: kerneldiff skipped, lower passed."),
        (None, {"lower": ("crashed", "")}, "skipped", "Not established: no script can show how lower ended. So."),
        ({"verdict": "not_established"}, PASSED, "skipped",
         "Not established: kerneldiff could not compare, so no failure is known."),
        ({"verdict": "not_established", "message": "so"}, PASSED, "skipped",
         "Not established: kerneldiff could not compare, so no failure is known. So."),
        ({"verdict": "not_established", "error": {"side": "reference", "type": "E"}}, PASSED, "skipped",
         "There is nothing to compare with."),
        ({"verdict": "not_established", "message": "E: so", "error": {"side": "reference", "type": "E"}}, PASSED,
         "skipped", "There is nothing to compare with: E: so."),
    ],
)  # fmt: skip
def test_where_there_is_nothing_to_look_for_it_says_why(
    diagnosis: dict[str, Any] | None, earlier: dict[str, tuple[str, str]], status: str, message: str
) -> None:
    found = looked_at(diagnosis, earlier)
    assert not isinstance(found, Known) and (found.status, found.message) == (status, message)


def test_what_left_scripts_of_its_own_is_not_looked_for() -> None:
    found = looked_at(None, {"lower": ("crashed", "error ProfileViolated")}, repros=[{"path": "repros/a.py"}])
    told = "There is nothing to do: lower left 1 reproduction of its own."
    assert (found.status, found.message) == ("skipped", told)


@pytest.mark.parametrize(
    ("diagnosis", "earlier", "failure", "same"),
    [
        ({"verdict": "defect"}, PASSED, "defect", True),
        ({"verdict": "defect"}, PASSED, "signal 11", False),
        ({"verdict": "not_established", "error": ERROR}, PASSED, "error CalledProcessError in a.py:f, b.py:g", True),
        ({"verdict": "not_established", "error": ERROR}, PASSED, "error KeyError in a.py:f, b.py:g", False),
        (None, {"lower": ("crashed", "signal 11")}, "signal 6", False),
        (None, {"lower": ("timed_out", "hang")}, "hang", True),
        (None, {}, "error KeyError in a.py:f, b.py:g", True),
    ],
)
def test_another_failure_is_not_taken_for_it(
    diagnosis: dict[str, Any] | None, earlier: dict[str, tuple[str, str]], failure: str, same: bool
) -> None:
    assert looked_at(diagnosis, earlier).is_it(failure) is same


SCRIPT = {"script": "def program():\n    return ()\n", "failure": "defect", "graph": "g0.forward", "node": "relu"}


@pytest.mark.parametrize(
    ("known", "found", "status"),
    [
        ("defect", SCRIPT | {"verified": True}, "passed"),
        ("defect", SCRIPT | {"verified": False}, "failed"),
        ("defect", {}, "failed"),
        ("passes", SCRIPT | {"verified": True}, "passed"),
        ("passes", {}, "skipped"),  # a run that passes does not fail for want of a script
        ("passes", SCRIPT | {"verified": False}, "skipped"),
        ("any", {}, "passed"),
        ("any", {"looked": False}, "skipped"),
        ("any", SCRIPT | {"verified": True}, "failed"),  # it alone tells that something fails
    ],
)
def test_the_status_tells_whether_a_script_shows_what_failed(
    known: str, found: dict[str, Any], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = {"defect": Known("kerneldiff", "defect"), "signal 11": Known("lower", "signal 11"),
              "passes": Known("kerneldiff", "defect", fails=False), "any": Known()}[known]  # fmt: skip
    monkeypatch.setattr(module, "known_failure", lambda *_: looked)
    monkeypatch.setattr(MinifyStage, "_search", lambda *_: Minified("so", **found))
    result = MinifyStage(MinifyConfig()).run(StageContext(Settings(ModelConfig("net")), MemoryArtifacts()))
    assert result.status == status
    assert bool(result.summary) == ("script" in found)


def test_a_search_that_raises_leaves_the_runs_failure_alone() -> None:
    settings = Settings(ModelConfig("custom", build={"_target_": "no.such"}))
    earlier = {"lower": StageRecord("lower", "crashed", 1.0, "", cause="signal 11")}
    result = MinifyStage(MinifyConfig()).run(StageContext(settings, MemoryArtifacts(), earlier=earlier))
    told = "Not established: the search ended with ConfigurationError: model.build._target_: got 'no.such': "
    assert result.status == "failed" and result.message.startswith(told), result
    assert result.message.endswith("on Python's path."), result
