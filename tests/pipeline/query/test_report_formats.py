"""``report --format``: each format is read by a reader that is not ours."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import dacite
import duckdb
import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from model_explorer import graph_builder, node_data_builder
from sarif_pydantic import Sarif
from small_report import full, report
from stored_analysis import write
from stored_results import stored_result, violation

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.query.export import model_explorer
from inductor_debug.stages.report.explorer.marks import Error

HOSTILE = "a|b `c` <img src=x>\x1b[31m\n# d"
PACKAGE = "/opt/env/lib/python3.11/site-packages/acme/net.py:3"
MANIFEST = {"machine": {}, "working_directory": "/home/me", "git": {"working_directory": None}}


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert cli.main(["report", *map(str, words)]) == 0
    return capsys.readouterr().out


def sarif_of(capsys: pytest.CaptureFixture[str], folder: Path) -> Any:
    """The runs as the reader has them."""
    return Sarif.model_validate_json(printed(capsys, folder, "--format", "sarif")).runs


@pytest.fixture
def page_run(tmp_path: Path) -> Path:
    """A run with a report."""
    content = full()
    html, data = report(content)
    kept = content | {"report/report.html": html, "report/report.json": data, "run.log": "",
                      ".hydra/config.yaml": "{}"}  # fmt: skip
    write(tmp_path / "run", {name: each for name, each in kept.items() if isinstance(each, str | dict | list)})
    return tmp_path / "run"


def test_violations_are_sarif_results_at_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        violation(finding="f1"), violation(finding="f1", source="/home/me/nets.py:14", node="mm_1"),
        violation(finding="f2", severity="error", source=PACKAGE), violation(finding="f3", severity="waived"),
        violation(finding="f4", severity="undecided", source="/srv/x y.py:9"), violation(finding="f5", source=""),
    ]  # fmt: skip
    (run,) = sarif_of(capsys, stored_result(tmp_path / "a", violations=rows, files={"manifest.json": MANIFEST}))
    (rule,) = run.tool.driver.rules
    assert rule.id == "alignment" and "the rule alignment of the profile" in rule.full_description.text
    assert "--type constraints" in rule.help.text
    levels = [(result.level.value, result.kind) for result in run.results]
    assert levels == [("warning", None), ("error", None), ("note", None), ("none", "open"), ("warning", None)]
    places = [result.locations[0].physical_location for result in run.results]
    found = [place and (place.artifact_location.uri, place.artifact_location.uri_base_id, place.region.start_line)
             for place in places]  # fmt: skip
    assert found == [("nets.py", "SRCROOT", 12), ("acme/net.py", "SITE_PACKAGES", 3), ("nets.py", "SRCROOT", 12),
                     ("file:///srv/x%20y.py", None, 9), None]  # fmt: skip
    plain = json.loads(printed(capsys, tmp_path / "a", "--format", "sarif"))["runs"][0]["results"]
    waived = [{"kind": "external", "justification": "waived by the profile"}]
    assert [result.get("suppressions") for result in plain] == [None, None, waived, None, None]
    (other,) = run.results[0].related_locations
    assert other.physical_location.region.start_line == 14
    assert run.results[0].message.text == "12 is not. Try: use 16"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_microsofts_validator_finds_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what GitHub's code scanning asks for."""
    rows = [violation(finding="f1"), violation(finding="f2", severity="waived"), violation(finding="f3", source="")]
    stored_result(tmp_path / "a", violations=rows, files={"manifest.json": MANIFEST})
    assert cli.main(["report", str(tmp_path / "a"), "--format", "sarif", "--out", str(tmp_path / "right.sarif")]) == 0
    wrong = json.loads((tmp_path / "right.sarif").read_text())
    del wrong["runs"][0]["tool"]["driver"]["rules"][0]["help"]
    (tmp_path / "wrong.sarif").write_text(json.dumps(wrong))
    monkeypatch.setenv("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
    subprocess.run(["npm", "pack", "@microsoft/sarif-multitool-linux"], cwd=tmp_path, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tgz")
    subprocess.run(["tar", "xzf", archive], cwd=tmp_path, check=True)
    validator = tmp_path / "package/Sarif.Multitool"
    validator.chmod(0o755)

    def errors(name: str) -> list[str]:
        words = [validator, "validate", name, "--output", f"{name}.found", "--rule-kind", "Sarif;Ghas"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Analysis completed" in done.stdout, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if ": error " in line]

    assert errors("right.sarif") == [] and "GH2012" in "".join(errors("wrong.sarif"))


def test_a_finding_keeps_its_fingerprint_when_its_line_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [violation(source=f"/home/me/nets.py:{line}", message=f"at {line}") for line in (12, 80)]
    other = violation(operand="output")
    marks = [sarif_of(capsys, stored_result(tmp_path / str(at), violations=[row]))[0].results[0].partial_fingerprints
             for at, row in enumerate([*lines, other])]  # fmt: skip
    assert marks[0] == marks[1] != marks[2]


def test_wrong_operations_and_kernels_that_did_not_compile_are_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = {"graph": "g0.forward", "node": "relu", "target": "aten.relu.default", "operations": ["relu"],
             "module": "act", "source": "/home/me/nets.py:20", "kernel": "cpp_relu:1", "sources": []}  # fmt: skip
    culprit = {"place": place, "kind": "operation", "ratio": 812.5, "slope": None, "call": 1, "index": [0, 3],
               "got": -1.0, "expected": 0.0}  # fmt: skip
    localized = {"kind": "operation", "method": "observed", "message": "", "culprits": [culprit]}
    line = {"file": "/home/me/nets.py", "line": 21, "code": "x", "own": True}
    stopped = {"graph": "g0.forward", "kernel": "cpp_add", "operations": ["aten.add.Tensor"], "sources": [line]}
    files = {"kerneldiff/diagnosis.json": {"localized": localized}, "lower/not_compiled.json": stopped}
    (run,) = sarif_of(capsys, stored_result(tmp_path / "a", violations=[], files=files))
    wrong, not_compiled = run.results
    assert (wrong.rule_id, wrong.level.value, wrong.properties["ratio"]) == ("wrong-numbers", "error", 812.5)
    assert "its error is 812 times its own noise floor" in wrong.message.text
    assert (not_compiled.rule_id, not_compiled.level.value) == ("not-compiled", "error")
    assert not_compiled.locations[0].physical_location.region.start_line == 21
    assert [run.tool.driver.rules[result.rule_index].id for result in run.results] == ["wrong-numbers", "not-compiled"]


def test_what_a_stage_that_did_not_pass_says_goes_along_in_sarif(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that results which a limit left out are not taken for all."""
    said = "Localization did not look at which operation makes 9 further values wrong."
    ended = {"stages/kerneldiff/status": "failed", "stages/kerneldiff/message": said}
    (run,) = json.loads(printed(capsys, stored_result(tmp_path / "a", summary=ended), "--format", "sarif"))["runs"]
    told = [(each["level"], each["message"]["text"]) for each in run["invocations"][0]["toolExecutionNotifications"]]
    assert ("note", f"kerneldiff failed: {said}") in told


def test_an_operation_beside_the_wrong_one_in_its_kernel_is_not_shown_as_wrong() -> None:
    relu, pooling, right = Error("wrong", 9.0, culprit=True), Error("wrong", 9.0), Error("right", 0.5)
    red, green, amber = model_explorer._RED, model_explorer._GREEN, model_explorer._AMBER
    color = model_explorer._colors([relu, pooling, right])
    assert [color(relu), color(pooling), color(right)] == [red, amber, green]
    assert model_explorer._colors([pooling, right])(pooling) == red  # none is known to be: the value itself is shown


def test_stages_are_junit_cases_of_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored_result(tmp_path / "sweep" / "0", summary={"stages/kerneldiff/status": "failed",
                                                     "stages/kerneldiff/message": "Wrong.\nBy much.",
                                                     "stages/benchmark/status": "skipped"})  # fmt: skip
    stored_result(tmp_path / "sweep" / "1", summary={"stages/lower/status": "crashed",
                                                     "stages/lower/message": "Error: \x1b[31m\x00 <b>"})  # fmt: skip
    document = JUnitXml.fromstring(printed(capsys, tmp_path / "sweep", "--format", "junit").encode())
    first, second = document
    assert (document.tests, document.failures, document.errors, document.skipped) == (12, 1, 1, 1)
    results = {case.name: [(type(each).__name__, each.message, each.text) for each in case.result] for case in first}
    assert results["kerneldiff"] == [("Failure", "Wrong.", "Wrong.\nBy much.")]
    assert results["benchmark"][0][0] == "Skipped" and results["capture"] == []
    crashed = next(case for case in second if case.name == "lower")
    assert type(crashed.result[0]).__name__ == "Error" and "\\u001b[31m\\u0000 <b>" in crashed.result[0].message


def test_a_damaged_table_of_a_job_costs_the_other_jobs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_result(tmp_path / "sweep" / "0", violations=[violation()], files={"manifest.json": MANIFEST})
    damaged = stored_result(tmp_path / "sweep" / "1", violations=[violation()], files={"manifest.json": MANIFEST})
    (damaged / "constrain" / "violations.csv").write_text("rule\nalignment\n")
    text = printed(capsys, tmp_path / "sweep", "--format", "sarif")
    whole, lost = Sarif.model_validate_json(text).runs
    assert len(whole.results) == 1 and not lost.results and not lost.invocations[0].execution_successful
    assert (
        "violations.csv"
        in json.loads(text)["runs"][1]["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    )
    assert cli.main(["report", str(damaged), "--format", "sarif"]) == 2


def test_markdown_says_what_the_report_says_first(page_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, page_run, "--format", "markdown")
    data = json.loads((page_run / "report" / "report.json").read_text())
    assert text.startswith("### bert on warn16, inductor: passed\n")
    assert re.sub(r"\\(.)", r"\1", text.splitlines()[2]) == data["sentence"]
    assert text.count("\n| ") == len(data["contents"]) + 2 + len(data["violations"]["top_lines"])
    assert "| `net.py:7` | `y = x @ w` | 3 |" in text
    assert all(command in text for command in data["then"]) and text.count("<details>") == text.count("</details>")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)  # a reader that is not ours
    titles = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "heading_open"]
    cells = [tokens[place + 1].content for place, token in enumerate(tokens) if token.type == "td_open"]
    commands = [line for token in tokens if token.type == "fence" for line in token.content.splitlines()]
    assert titles[0] == "bert on warn16, inductor: passed" and {*data["then"]} <= {*commands}
    assert cells[(at := cells.index("`net.py:7`")) : at + 3] == ["`net.py:7`", "`y = x @ w`", "3"]


def test_nothing_that_a_model_is_called_starts_something_in_markdown(
    page_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = page_run / "report" / "report.json"
    data = json.loads(path.read_text())
    row = data["violations"]["top_lines"][0]
    row |= {"source": HOSTILE, "code": HOSTILE, "suggestion": HOSTILE}
    data |= {"title": HOSTILE, "sentence": HOSTILE, "then": ["```\n" + HOSTILE]}
    path.write_text(json.dumps(data))
    text = printed(capsys, page_run, "--format", "markdown")
    assert "\x1b" not in text and "\\n\\# d" in text and "\\<img" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| `a\\|b")]
    assert len(re.findall(r"(?<!\\)\|", line)) == 6 and line.count("`") % 2 == 0
    assert "````sh\n```\\na|b" in text  # the fence is longer than the one inside


def test_graphs_and_node_data_are_model_explorers(
    page_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "me"
    paths = printed(capsys, page_run, "--format", "model-explorer", "--out", out).split()
    assert {Path(path).name for path in paths} >= {"graphs.json", "violations.json"}
    strict = dacite.Config(strict=True)
    (collection,) = [dacite.from_dict(graph_builder.GraphCollection, each, strict)
                     for each in json.loads((out / "graphs.json").read_text())]  # fmt: skip
    nodes = {graph.id: {node.id: node for node in graph.nodes} for graph in collection.graphs}
    assert nodes["g0.forward"]["mm"].label == "aten.mm.default"
    assert all(edge.sourceNodeId in known for known in nodes.values() for node in known.values()
               for edge in node.incomingEdges)  # fmt: skip
    for path in out.glob("*.json"):
        if path.name != "graphs.json":
            for graph, data in json.loads(path.read_text()).items():
                found = dacite.from_dict(node_data_builder.GraphNodeData, data, strict)
                assert found.results.keys() <= nodes[graph].keys() and found.results
    violations = json.loads((out / "violations.json").read_text())
    assert violations["g0.forward"]["results"]["mm"]["value"] == 3


def test_the_page_the_data_and_the_trace_are_those_stored(page_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = page_run / "report" / "report.html"
    assert printed(capsys, page_run) == f"{page}\n"
    copy = page_run.parent / "copies" / "page.html"
    assert printed(capsys, page_run, "--out", copy) == f"{copy}\n" and copy.read_text() == page.read_text()
    data = json.loads(printed(capsys, page_run, "--format", "json"))
    assert data == json.loads(page.with_suffix(".json").read_text())
    file = page_run.parent / "copies" / "report.json"
    printed(capsys, page_run, "--format", "json", "--out", file)
    (read,) = duckdb.read_json(str(file)).fetchall()  # a reader that is not ours
    assert read[list(data).index("title")] == data["title"] and len(read) == len(data)
    trace = json.dumps({"traceEvents": []})
    (page_run / "profile").mkdir()
    (page_run / "profile" / "trace.json.gz").write_bytes(gzip.compress(trace.encode()))
    assert printed(capsys, page_run, "--format", "perfetto") == trace
    printed(capsys, page_run, "--format", "perfetto", "--out", page_run / "t.json.gz")
    assert gzip.decompress((page_run / "t.json.gz").read_bytes()).decode() == trace


@pytest.mark.parametrize(
    "words, message",
    [
        (["--format", "perfetto"], "holds no trace: the stage profile was not selected"),
        (["--format", "markdown"], "holds no report: the stage report passed: done.\nTry: inductor-debug rerun"),
        (["--format", "model-explorer"], "holds no graphs"),
        (["--format", "sarif", "--out", "/proc/x/y"], "--out: got /proc/x/y, which can't be written"),
    ],
)
def test_what_a_run_does_not_hold_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert cli.main(["report", str(stored_result(tmp_path / "a")), *words]) == 2
    assert message in capsys.readouterr().err


def test_runs_without_a_result_are_in_both_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep"
    stored_result(sweep / "0")
    stored_result(sweep / "1")
    stored_result(sweep / "2", without=("summary.json",))
    stored_result(sweep / "3", summary={"verdict": "splendid"})
    document = JUnitXml.fromstring(printed(capsys, sweep, "--format", "junit").encode())
    assert (document.tests, document.errors) == (14, 2) and len({suite.name for suite in document}) == 4
    (killed,) = (suite for suite in document if suite.name == "2")
    assert "killed" in next(iter(killed)).result[0].message
    runs = sarif_of(capsys, sweep)
    assert [run.invocations[0].execution_successful for run in runs] == [True, True, False, False]
    assert len({run.automation_details.id for run in runs}) == 4


def test_findings_that_are_alike_have_fingerprints_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [violation(finding=f"f{number}", node=f"mm_{number}") for number in range(3)]
    (run,) = sarif_of(capsys, stored_result(tmp_path / "a", violations=rows))
    marks = [next(iter(result.partial_fingerprints.values())) for result in run.results]
    assert marks[1:] == [f"{marks[0]}:2", f"{marks[0]}:3"]


@pytest.mark.parametrize("key", ["contents", "then", "versions", "title"])
def test_a_report_without_a_part_is_damaged(page_run: Path, capsys: pytest.CaptureFixture[str], key: str) -> None:
    path = page_run / "report" / "report.json"
    path.write_text(json.dumps({name: each for name, each in json.loads(path.read_text()).items() if name != key}))
    assert cli.main(["report", str(page_run), "--format", "markdown"]) == 2
    assert f"report.json: {key} is not there, or no " in capsys.readouterr().err


def test_several_runs_are_one_document_of_two_formats_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for job in "01":
        stored_result(tmp_path / "sweep" / job)
    assert len(sarif_of(capsys, tmp_path / "sweep")) == 2
    assert cli.main(["report", str(tmp_path / "sweep"), "--format", "markdown"]) == 2
    assert "holds 2 runs; valid: one run, or --format sarif or junit" in capsys.readouterr().err
