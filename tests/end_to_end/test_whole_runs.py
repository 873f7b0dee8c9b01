"""The command line on a small model, judged by the run directory it leaves."""

import hashlib
import inspect
import json
from collections.abc import Callable

import pandas
import pytest
import small_models
from command_line import QUICK, SMALL, Finished, command

from inductor_debug.pipeline import cli

LINES, FIRST_LINE = inspect.getsourcelines(small_models.Block)
SOURCE_LINES = range(FIRST_LINE, FIRST_LINE + len(LINES))
VIOLATION_COLUMNS = [
    *("graph", "node", "target", "operand", "module", "source", "rule", "effect", "severity"),
    *("measured", "limit", "cost_bytes", "cost_share", "message", "suggestion", "finding"),
]
SUMMARY_KEYS = {
    *("schema", "run", "compiled_by", "verdict", "stages", "graphs", "violations", "numerics", "benchmark", "repros"),
}

WRONG = ("backend=eager", "stages=[capture,kerneldiff,report]")


def line_of(fragment: str) -> int:
    """The line of ``small_models.py`` that holds ``fragment`` inside Block."""
    (number,) = [FIRST_LINE + index for index, text in enumerate(LINES) if fragment in text]
    return number


@pytest.mark.parametrize("name", ["inference_run", "training_run"])
def test_run_passes_and_leaves_a_complete_directory(name: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(name)
    assert finished.code == 0, finished.output
    assert set(finished.statuses().values()) == {"passed"}
    assert set(finished.summary) >= SUMMARY_KEYS
    expected = [
        ".hydra/config.yaml",
        "run.log",
        "capture/graphs/g0.dynamo.json",
        "capture/graphs/g0.forward.py",
        "capture/statistics.csv",
        "capture/breaks.json",
        "capture/guards.json",
        "constrain/violations.csv",
        "lower/g0.forward/pre_grad.py",
        "lower/g0.forward/post_grad.py",
        "lower/g0.forward/post_grad.svg",
        "lower/g0.forward/ir_pre_fusion.txt",
        "lower/g0.forward/ir_post_fusion.txt",
        "lower/g0.forward/output_code.py",
        "lower/g0.forward/provenance.json",
        "kerneldiff/outputs.csv",
        "benchmark/samples.csv",
        "benchmark/summary.csv",
        "report/report.html",
        "report/report.json",
    ]
    missing = [name for name in expected if not (finished.directory / name).stat().st_size]
    assert not missing
    assert not list(finished.directory.rglob("*.tmp"))
    for path in finished.directory.rglob("*.json"):
        finished.json(str(path.relative_to(finished.directory)))


def test_manifest_lists_every_file_with_its_digest(inference_run: Finished) -> None:
    files = inference_run.json("manifest.json")["files"]
    listed = {entry["path"]: entry["sha256"] for entry in files} if isinstance(files, list) else files
    present = {str(p.relative_to(inference_run.directory)) for p in inference_run.directory.rglob("*") if p.is_file()}
    assert present - {"manifest.json"} == set(listed)
    for name in ("capture/graphs/g0.forward.json", "summary.json", "run.log"):
        assert listed[name] == hashlib.sha256((inference_run.directory / name).read_bytes()).hexdigest()


def test_every_violation_names_its_line(inference_run: Finished) -> None:
    violations = inference_run.table("constrain/violations.csv")
    assert list(violations.columns) == VIOLATION_COLUMNS
    assert set(violations["rule"]) == {"alignment"}
    assert inference_run.summary["violations"]["total"] == len(violations)
    projection = violations[violations["target"].str.contains("addmm|linear|mm")]
    assert any(
        str(source).endswith(f"small_models.py:{line_of('self.projection(hidden)')}") for source in projection["source"]
    )


def test_analyze_tells_every_violation_and_the_lines_they_are_at(
    training_run: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["analyze", str(training_run.directory), "--type", "constraints", "--format", "json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    stored = training_run.table("constrain/violations.csv").fillna("")
    told = pandas.DataFrame(tables["violations"], columns=VIOLATION_COLUMNS).fillna("")
    keys = ["graph", "node", "operand", "source", "rule", "effect", "measured", "limit"]
    assert len(stored) and told[keys].astype(str).to_numpy().tolist() == stored[keys].astype(str).to_numpy().tolist()
    by_rule = {(row["rule"], row["effect"]): row["findings"] for row in tables["rules"]}
    assert by_rule == stored.groupby(["rule", "effect"]).size().to_dict()
    by_line = stored.groupby("source").size()
    assert {row["source"]: row["findings"] for row in tables["lines"]} == by_line.to_dict()
    assert f"{small_models.__file__}:{line_of('self.projection(hidden)')}" in by_line
    costs = [row["cost_bytes"] for row in tables["lines"]]
    assert costs == sorted(costs, reverse=True) and costs[0] > 0


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_kernels_lead_to_source_lines(direction: str, training_run: Finished) -> None:
    provenance = training_run.json(f"lower/g0.{direction}/provenance.json")
    assert provenance["kernels"]
    assert provenance["kernels_mapped_share"] > 0.5
    sources = [source for kernel in provenance["kernels"] for source in kernel["sources"]]
    assert line_of("torch.relu") in {source["line"] for source in sources}
    assert all(source["file"] == small_models.__file__ for source in sources)
    assert list((training_run.directory / f"lower/g0.{direction}/kernels").iterdir())


def test_backward_nodes_know_their_lines(training_run: Finished) -> None:
    nodes = training_run.json("capture/graphs/g0.backward.json")["nodes"]
    computing = [node for node in nodes if node["op"] == "call_function"]
    lines = {
        node["source"]["line"] for node in computing if node["source"] and "small_models" in node["source"]["file"]
    }
    assert {line_of("torch.relu"), line_of("self.projection(hidden)")} <= lines
    assert lines <= set(SOURCE_LINES)
    assert (training_run.directory / "capture/graphs/g0.joint.json").exists()


def test_outputs_loss_and_gradients_are_compared(training_run: Finished) -> None:
    outputs = training_run.table("kerneldiff/outputs.csv")
    assert {"output", "loss", "gradient"} <= set(outputs["kind"])
    assert {"logits", "states[0]", "states[1][0]", "projection.weight"} <= set(outputs["path"].astype(str))
    assert set(outputs["verdict"]) <= {"exact", "within_floor"}
    assert training_run.summary["numerics"]["verdict"] in {"exact", "within_floor"}


def test_compile_time_contains_the_compilation(inference_run: Finished) -> None:
    test = inference_run.summary["benchmark"]["test"]
    assert test["compile_s"] > 0.1  # the lazy call takes a millisecond
    assert test["samples"] == 2 * 3 and test["peak_memory_bytes"] > 0  # two processes
    used = inference_run.json("lower/summary.json")["caches"]
    assert test["compile_kind"] == used["kind"]
    assert (used["kind"] == "warm") == (used["made"] == 0)  # runs share a cache: which it is depends on those before


@pytest.mark.parametrize(("kind", "graphs"), [("inference_run", 1), ("training_run", 2)])
def test_sampling_processes_load_what_lower_compiled(kind: str, graphs: int, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(kind)
    told = finished.json("benchmark/environment.json")
    assert told["compiled_again"] == [f"nothing: {graphs} graph{'s' * (graphs > 1)} loaded"] * 2
    for process in told["processes"]:
        caches = process["first_test_step"]["caches"]
        assert (caches["loaded"], caches["missed"], caches["refused"], caches["made"]) == (graphs, 0, 0, 0)
    samples = finished.table("benchmark/samples.csv")
    assert set(samples["process"]) == {0, 1}


def test_report_stands_alone_and_shows_the_verdict(inference_run: Finished) -> None:
    page = (inference_run.directory / "report/report.html").read_text()
    assert "passed" in page.lower() and "small_models.py" in page
    assert 'src="http' not in page and "<link" not in page


def test_strict_violation_fails_and_skips_the_rest(run: Callable[..., Finished]) -> None:
    finished = run(*SMALL, "accel=strict16")
    assert finished.code == 1
    statuses = finished.statuses()
    assert statuses["constrain"] == "failed"
    assert {statuses[name] for name in ("lower", "kerneldiff", "benchmark", "minify")} == {"skipped"}
    assert statuses["report"] == "passed" and (finished.directory / "report/report.html").exists()


def test_scaled_output_is_a_defect(run: Callable[..., Finished]) -> None:
    finished = run(
        *SMALL, "backend=eager", "backend.adapter=faulty_adapters.ScaledOutput", "stages=[capture,kerneldiff,report]"
    )
    assert finished.code == 1
    assert finished.summary["numerics"]["verdict"] == "defect"
    assert list((finished.directory / "kerneldiff/plots").glob("*.png"))


def test_crashing_backend_is_not_established(run: Callable[..., Finished]) -> None:
    finished = run(
        *SMALL, "backend=eager", "backend.adapter=faulty_adapters.CrashInCompile", "stages=[capture,kerneldiff,report]"
    )
    assert finished.code in (1, 3)
    assert finished.summary["numerics"]["verdict"] == "not_established"


def test_rerun_gives_the_same_digest_and_another_seed_another(run: Callable[..., Finished], tmp_path) -> None:
    stages = ("backend=aot_eager", "stages=[capture,constrain,kerneldiff]", "accel=warn16")
    first = run(*SMALL, *stages)
    config_path = str(first.directory / ".hydra")
    again = command("--config-path", config_path, "--config-name", "config", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    (directory,) = [path.parent for path in tmp_path.glob("outputs/*/*/summary.json")]
    second = Finished(0, "", directory)
    other = run(*SMALL, *stages, "seed=1")
    digest = first.json("manifest.json")["digest"]
    assert second.json("manifest.json")["digest"] == digest
    assert other.json("manifest.json")["digest"] != digest


def test_sweep_gives_one_table_and_survives_a_failing_job(tmp_path) -> None:
    adapters = "faulty_adapters.CrashInCompile,eager"
    finished = command(
        "--multirun", *SMALL, "accel=warn16", "accel.alignment=8,16", "stages=[capture,constrain]", cwd=tmp_path
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (table,) = tmp_path.glob("outputs/*/*/sweep.csv")
    rows = Finished(0, "", table.parent).table("sweep.csv")
    assert len(rows) == 2
    assert rows["violations"].tolist() == sorted(rows["violations"].tolist())
    assert rows["violations"].nunique() == 2 or rows["violations"].min() > 0

    finished = command(
        "--multirun", *SMALL, f"backend.adapter={adapters}", *QUICK, "stages=[capture,benchmark]", cwd=tmp_path / "."
    )
    assert finished.returncode == 3, finished.stdout + finished.stderr
    tables = sorted(tmp_path.glob("outputs/*/*/sweep.csv"))
    rows = Finished(0, "", tables[-1].parent).table("sweep.csv")
    assert rows["verdict"].tolist() == ["crashed", "passed"]
