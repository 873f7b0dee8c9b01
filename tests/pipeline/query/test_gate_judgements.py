"""``compare A B`` as a gate: each thing that can get worse does, alone, and nothing else is told."""

from pathlib import Path
from typing import Any

import pytest
from stored_results import compare_as_json, node, output, stored_result, violation

FINDING = "finding alignment (pad): aten.mm.default args[1] in head"
TENSOR = "output logits"
OPERATION = "operation aten.mm.default in head (forward)"
DEFECT = {"summary": {"numerics/verdict": "defect"}}
Case = tuple[dict[str, Any], dict[str, Any], str, str]

WORSE: dict[str, Case] = {
    "the run's verdict": ({}, {"summary": {"verdict": "failed"}}, "verdict of the run", "stages: 0"),
    "a stage that failed": ({}, {"summary": {"stages/lower/status": "failed"}}, "stage lower", "stages: 0"),
    "a stage that crashed": (
        {"summary": {"stages/lower/status": "failed"}}, {"summary": {"stages/lower/status": "crashed"}},
        "stage lower", "stages: 0"),
    "a stage that was skipped": ({}, {"summary": {"stages/lower/status": "skipped"}}, "stage lower", "stages: 0"),
    "a finding": ({"violations": []}, {}, FINDING, "findings: 0"),
    "a second finding at one place": (
        {}, {"violations": [violation(), violation(node="mm_1", finding="f2")]}, FINDING, "findings: 0"),
    "a finding's severity": ({}, {"violations": [violation(severity="error")]}, FINDING, "findings: 0"),
    "a waiver that expired": ({"violations": [violation(severity="waived")]}, {}, FINDING, "findings: 0"),
    "another effect": (
        {"violations": [violation(), violation(effect="cast", finding="f2", source="x.py:1")]},
        {"violations": [violation(), violation(effect="reject", finding="f2", source="x.py:1")]},
        FINDING.replace("pad", "reject"), "findings: 0"),
    "bytes that findings cost": ({}, {"cost": 129}, "cost of alignment (pad)", "cost_bytes: 1.0"),
    "the verdict on numbers": ({}, {"summary": {"numerics/verdict": "defect"}}, "numerics", "verdict: within_floor"),
    "a tensor's verdict": ({}, {"outputs": [output(verdict="defect")]}, TENSOR, "verdict: within_floor"),
    "a tensor's verdict for further inputs": (
        {}, {"outputs": [output(), output(path="logits (draw 3)", verdict="defect")], **DEFECT}, TENSOR,
        "verdict: within_floor"),
    "a further tensor's verdict for further inputs": (
        {"outputs": [output(), output(path="logits (draw 3)", verdict="defect"), output(path="pooled")], **DEFECT},
        {"outputs": [output(path="logits (draw 2)", verdict="defect"), output(path="pooled"),
                     output(path="pooled (draw 5)", verdict="defect")], **DEFECT},
        "output pooled", "verdict: within_floor"),
    "a step that raises for further inputs": (
        {}, {"outputs": [output(), output(path="all (draw 2)", verdict="defect", ratio="", rmse="")], **DEFECT},
        "output all", "verdict: within_floor"),
    "a pass by tolerance alone": (
        {}, {"outputs": [output(verdict="within_tolerance")]}, TENSOR, "verdict: within_floor"),
    "numbers that were not exercised": (
        {}, {"summary": {"numerics/verdict": "not_exercised"}}, "numerics", "verdict: within_floor"),
    "an error in floors": ({}, {"outputs": [output(ratio=3.1)]}, f"{TENSOR}: error in noise floors", "error: 2.0"),
    "an error that is no number": ({}, {"outputs": [output(ratio="nan")]}, f"{TENSOR}: error in noise floors",
                                   "error: 2.0"),
    "an error without a floor": (
        {"outputs": [output(ratio="")]}, {"outputs": [output(ratio="", rmse=3e-6)]}, f"{TENSOR}: RMS error",
        "error: 2.0"),
    "an operation that is wrong": (
        {"nodes": [node()]}, {"nodes": [node(state="wrong", ratio=9)]}, OPERATION, "local_error: 2.0"),
    "a second wrong operation": (
        {"nodes": [node(state="wrong"), node()]}, {"nodes": [node(state="wrong"), node(state="slope", node="mm_1")]},
        OPERATION, "local_error: 2.0"),
    "an operation's error": (
        {"nodes": [node()]}, {"nodes": [node(ratio=2.5)]}, f"{OPERATION}: error in noise floors", "local_error: 2.0"),
    "an operation's error in one of two files": (
        {"nodes": [node(module="", source="a.py:1"), node(module="", source="b.py:1", ratio=3.0)]},
        {"nodes": [node(module="", source="a.py:1", ratio=3.0), node(module="", source="b.py:1", ratio=3.0)]},
        "operation aten.mm.default in a.py (forward): error in noise floors", "local_error: 2.0"),
    "a finding in one of two files": (
        {"violations": [violation(module="", source="a.py:1")]},
        {"violations": [violation(module="", source="b.py:1")]},
        "finding alignment (pad): aten.mm.default args[1] in b.py", "findings: 0"),
    "a wrong operation where none was looked at": (
        {}, {"nodes": [node(state="wrong")]}, "values that end in aten.mm.default", "local_error: 2.0"),
    "graph breaks": ({}, {"summary": {"graphs/breaks": 2}}, "graph breaks", "breaks: 0"),
    "guards": ({}, {"summary": {"graphs/guards": 21}}, "guards", "guards: 0"),
    "nodes": ({}, {"summary": {"graphs/nodes": 11}}, "nodes of AOTAutograd's graphs", "nodes: 0"),
    "launches": ({}, {"lowering": {"graphs/g0.forward/launches": 11}}, "launches of kernels", "kernels: 0"),
    "launches of a further graph": (
        {}, {"lowering": {"graphs/g1.forward": {"launches": 1, "kernels_mapped_share": 1.0}}}, "launches of kernels",
        "kernels: 0"),
    "source lines of kernels": (
        {}, {"lowering": {"graphs/g0.forward/kernels_mapped_share": 0.9}}, "share of launches with a source line",
        "mapped: 0.0"),
    "peak memory": (
        {}, {"summary": {"benchmark/test/peak_memory_bytes": 1051}}, "peak memory (bytes)", "peak_memory: 1.05"),
    "compile time": ({}, {"lowering": {"compile_s": 31.0}}, "compile time (s)", "compile_s: 1.5"),
}  # fmt: skip
BACKWARDS_TOO = [name for name in WORSE if name not in ("an error that is no number", "another effect",
                                                        "a finding in one of two files",
                                                        "a step that raises for further inputs",
                                                        "a wrong operation where none was looked at")]  # fmt: skip


def compared(before: dict[str, Any], now: dict[str, Any], tmp_path: Path, capsys: Any) -> dict[str, Any]:
    a, b = stored_result(tmp_path / "a", **before), stored_result(tmp_path / "b", **now)
    return compare_as_json(a, b, capsys=capsys)


@pytest.mark.parametrize("name", WORSE)
def test_what_got_worse_is_told_by_itself_and_fails(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now, what, limit = WORSE[name]
    found = compared(before, now, tmp_path, capsys)
    assert [(row["what"], row["limit"]) for row in found["tables"]["worse"]] == [(what, limit)]
    assert found["tables"]["not_established"] == [] and found["exit_code"] == 1


def test_a_verdict_that_no_tensor_of_a_explains_is_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = [output(verdict="exact"), output(path="pooled", verdict="defect")]
    before = {"outputs": [output(verdict="defect")], "summary": {"numerics/verdict": "within_floor"}}
    found = compared(before, {"outputs": new, "summary": {"numerics/verdict": "defect"}}, tmp_path, capsys)["tables"]
    assert [row["what"] for row in found["worse"]] == ["output pooled"]
    assert [row["what"] for row in found["better"]] == ["output logits"]


@pytest.mark.parametrize("verdict", ["not_exercised", "not_established"])
def test_numbers_are_no_better_where_nothing_of_b_was_tested(
    verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backend that executes nothing any more leaves torch's own bits, which are exact."""
    wrong = {"outputs": [output(verdict="defect")], "summary": {"numerics/verdict": "defect"}}
    now = {"outputs": [output(verdict="exact")], "summary": {"numerics/verdict": verdict}}
    found = compared(wrong, now, tmp_path, capsys)
    assert (found["tables"]["better"], found["tables"]["worse"], found["exit_code"]) == ([], [], 0)
    told = {row["what"]: row["change"] for row in found["tables"]["not_established"]}
    assert told == dict.fromkeys((TENSOR, "numerics"), "nothing is known of B's numbers")


def test_wrong_values_of_one_operator_are_one_row_where_none_was_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = node(state="wrong", target="<built-in function getitem>")
    pooled = node(state="wrong", target="<built-in function getitem>", original="aten.max_pool2d_with_indices.default")
    wrong = [node(state="wrong"), node(state="slope", module="tail"), python, pooled,
             node(state="right", target="aten.add")]  # fmt: skip
    told = ("wrong for what their kernels received, first in head (forward); A's results are right, and so its "
            "operations were not looked at")  # fmt: skip
    found = compared({}, {"nodes": wrong}, tmp_path, capsys)["tables"]["worse"]
    assert [(row["what"], row["B"], row["change"]) for row in found] == [
        ("values that end in aten.mm.default", "2 wrong", told), ("values that end in getitem", "1 wrong", told),
        ("values that end in aten.max_pool2d_with_indices.default", "1 wrong", told),
    ]  # fmt: skip


@pytest.mark.parametrize("name", BACKWARDS_TOO)
def test_the_same_the_other_way_is_better_and_passes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now, what, limit = WORSE[name]
    found = compared(now, before, tmp_path, capsys)
    if limit not in ("peak_memory: 1.05", "error: 2.0", "local_error: 2.0"):  # less than the limit's share is noise
        assert [row["what"] for row in found["tables"]["better"]] == [what]
    assert found["tables"]["worse"] == [] and found["exit_code"] == 0


@pytest.mark.parametrize("name", WORSE)
def test_what_is_not_to_be_judged_is_not(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, now, _, limit = WORSE[name]
    (tmp_path / "limits.yaml").write_text(f"{limit.partition(':')[0]}: null\n")
    a, b = stored_result(tmp_path / "a", **before), stored_result(tmp_path / "b", **now)
    found = compare_as_json(a, b, "--limits", tmp_path / "limits.yaml", capsys=capsys)
    assert found["exit_code"] == 0 and found["tables"]["worse"] == []
    assert f"not judged, as the limits say: {limit.partition(':')[0]}" in found["told"]


def test_a_step_that_raises_no_more_is_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of what fails no more there is no row."""
    before, now, *_ = WORSE["a step that raises for further inputs"]
    found = compared(now, before, tmp_path, capsys)
    assert [row["what"] for row in found["tables"]["better"]] == ["numerics"]
    assert (found["tables"]["not_established"], found["exit_code"]) == ([], 0)


@pytest.mark.parametrize(("state", "was"), [("wrong", "1 wrong"), ("right", "right")])
def test_an_operation_that_b_did_not_see_is_no_better(
    state: str, was: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unseen = node(state="not_checked", ratio="")
    tables = compared({"nodes": [node(state=state)]}, {"nodes": [unseen]}, tmp_path, capsys)["tables"]
    assert tables["better"] == [] and [(row["what"], row["A"], row["fails"]) for row in tables["not_established"]] == [
        (OPERATION, was, False)
    ]


@pytest.mark.parametrize("status", ["failed", "crashed", "timed_out"])
def test_a_stage_that_b_did_not_come_to_is_no_better(
    status: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now = ({"summary": {"stages/kerneldiff/status": each}} for each in (status, "skipped"))
    tables = compared(before, now, tmp_path, capsys)["tables"]
    assert tables["better"] == [] and [(row["what"], row["fails"]) for row in tables["not_established"]] == [
        ("stage kerneldiff", False)
    ]


NO_WORSE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the same": ({}, {}),
    "another line, another node": (
        {"nodes": [node()]},
        {"violations": [violation(source="/ci/nets.py:14", node="mm_7")],
         "nodes": [node(source="/ci/nets.py:14", node="mm_7")]}),
    "another file's folder": ({}, {"violations": [violation(source="/ci/nets.py:12")]}),
    "a finding that is waived": (
        {}, {"violations": [violation(), violation(operand="output", finding="f2", severity="waived")]}),
    "one finding of two rows": ({}, {"violations": [violation(), violation(operand="output", node="mm_1")]}),
    "bits that became noise": (
        {"outputs": [output(verdict="exact", ratio="", rmse=0)], "summary": {"numerics/verdict": "exact"}}, {}),
    "a loss that was wrong for further inputs": (
        {"outputs": [output(kind="loss", path="loss"), output(kind="loss", path="loss (draw 2)", verdict="defect")],
         **DEFECT},
        {"outputs": [output(kind="loss", path="loss", verdict="defect")], **DEFECT}),
    "a failure of the same inputs again": (
        {"outputs": [output(), output(path="logits (draw 1 again)", verdict="defect")], **DEFECT},
        {"outputs": [output(), output(path="logits (draw 2)", verdict="defect")], **DEFECT}),
    "an error within noise": ({"outputs": [output(ratio=0.2)]}, {"outputs": [output(ratio=1.9)]}),
    "an operation's error within noise": ({"nodes": [node(ratio=0.1)]}, {"nodes": [node(ratio=1.9)]}),
    "a compilation within its limit": ({}, {"lowering": {"compile_s": 30.0}}),
    "memory within its limit": ({}, {"summary": {"benchmark/test/peak_memory_bytes": 1050}}),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_WORSE)
def test_what_is_no_worse_beyond_noise_is_not_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, now = NO_WORSE[name]
    found = compared(before, now, tmp_path, capsys)
    tables = found["tables"]
    assert (tables["worse"], tables["not_established"], found["exit_code"]) == ([], [], 0)


LOST: dict[str, tuple[dict[str, Any], str]] = {
    "a stage": ({"summary": {"stages": [], "violations": None}}, "stage capture"),
    "findings": ({"summary": {"violations/total": None}}, "findings"),
    "the cost of findings": ({"cost": None}, "cost of alignment (pad)"),
    "the verdict": ({"summary": {"numerics": None}}, "numerics"),
    "a tensor": ({"outputs": [output(path="other")]}, TENSOR),
    "all tensors": ({"without": ("kerneldiff/outputs.csv",)}, TENSOR),
    "an error": ({"outputs": [output(ratio="", rmse="")]}, f"{TENSOR}: error in noise floors"),
    "counts of graphs": ({"summary": {"graphs": None}}, "guards"),
    "launches": ({"without": ("lower/summary.json",)}, "launches of kernels"),
    "launches that the backend does not tell": (
        {"lowering": {"graphs/g0.forward/launches": None}}, "launches of kernels"),
    "source lines": ({"lowering": {"graphs/g0.forward/kernels_mapped_share": None}},
                     "share of launches with a source line"),
    "peak memory": ({"summary": {"benchmark/test/peak_memory_bytes": None}}, "peak memory (bytes)"),
    "compile time": ({"lowering": {"compile_s": None}, "summary": {"benchmark/test/compile_s": None}},
                     "compile time (s)"),
    "latency": ({"without": ("benchmark/samples.csv",)}, "latency (ms)"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_what_a_had_and_b_lacks_is_never_passed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now, what = LOST[name]
    found = compared({}, now, tmp_path, capsys)
    assert {row["what"]: row["fails"] for row in found["tables"]["not_established"]}[what] is True
    assert found["exit_code"] == 1


@pytest.mark.parametrize("name", [name for name in LOST if name != "a tensor"])  # A's other one is lost to B
def test_what_only_b_has_is_held_to_nothing(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, what = LOST[name]
    found = compared(before, {}, tmp_path, capsys)
    assert not any(row["fails"] for row in found["tables"]["not_established"]) and found["exit_code"] == 0
    told = name not in ("a stage", "all tensors", "an error")
    assert (what in {row["what"] for row in found["tables"]["not_established"]}) is told


@pytest.mark.parametrize("name", LOST)
def test_what_neither_has_is_not_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lacking, _ = LOST[name]
    found = compared(lacking, lacking, tmp_path, capsys)
    assert (found["tables"]["not_established"], found["exit_code"]) == ([], 0)


def test_operations_that_b_did_not_look_at_fail_where_it_did_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {"summary": {"numerics/verdict": "defect"}}
    stored_result(tmp_path / "a", nodes=[node(state="wrong")], **wrong)
    for name, changes, code in (("failed", wrong, 1), ("passed", {}, 0)):
        stored_result(tmp_path / name, **changes)
        found = compare_as_json(tmp_path / "a", tmp_path / name, capsys=capsys)
        (row,) = found["tables"]["not_established"]
        assert (row["what"], row["fails"], found["exit_code"]) == ("errors of operations", bool(code), code)


def test_a_verdict_that_is_not_ours_says_nothing_of_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared({}, {"outputs": [output(verdict="perfect")]}, tmp_path, capsys)
    assert [row["what"] for row in found["tables"]["worse"]] == [TENSOR]


def test_a_count_may_rise_up_to_its_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "limits.yaml").write_text("guards: 2\nfindings: 1\nstages: 1\nverdict: within_tolerance\nmapped: 0.2")
    a = stored_result(tmp_path / "a", violations=[])
    for guards, findings, code in ((22, 1, 0), (23, 1, 1), (22, 2, 1)):
        b = stored_result(
            tmp_path / f"{guards}-{findings}",
            summary={"graphs/guards": guards, "stages/report/status": "failed"},
            violations=[violation(finding=f"f{number}") for number in range(findings)],
            outputs=[output(verdict="within_tolerance")],
            lowering={"graphs/g0.forward/kernels_mapped_share": 0.85},
        )
        assert compare_as_json(a, b, "--limits", tmp_path / "limits.yaml", capsys=capsys)["exit_code"] == code
