"""The script behind docs/case-studies/results.md."""

import csv
import json
import sys
from pathlib import Path

import pytest
from stored_captures import stored_run

TRIALS = Path(__file__).parents[1] / "trials"


@pytest.fixture
def results_table(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TRIALS))
    monkeypatch.delitem(sys.modules, "results_table", raising=False)
    import results_table

    return results_table


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A sweep's one job: a width of 24, two compared tensors, a speed-up that other programs disturbed."""
    folder = stored_run(tmp_path / "sweep/0-job", 24)
    benchmark = {"speedup": 1.5, "speedup_ci95": [1.2, 1.8], "established": False}
    about = {"model": "nets", "dtype": "float32"}
    (folder / "summary.json").write_text(json.dumps(
        {"run": about, "graphs": {"nodes": 70}, "numerics": {"verdict": "within_floor"}, "benchmark": benchmark}
    ))  # fmt: skip
    lowered = {"kernels": 2, "launches": 5, "extern_launches": 3}
    (folder / "lower").mkdir()
    (folder / "lower/summary.json").write_text(json.dumps({"graphs": {"g0.forward": lowered, "g1.forward": lowered}}))
    (folder / "kerneldiff").mkdir()
    with (folder / "kerneldiff/outputs.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerows([("ratio", "resolution", "factor"), (0.5, 1e-6, 4.0), (1.25, 2e-7, 4.0)])
    return folder


def test_a_fit_has_the_findings_and_their_share_of_flops(results_table, run: Path) -> None:
    assert results_table.fit(run, "strict8").told == "fits"
    assert (
        results_table.fit(run, "strict16").told == "2 (100 % of operations, 100 % of FLOPs)"
    )  # the input, and what the operation makes
    assert results_table.Fit(3, 0.25, 0.5, rejected=1).told == "3 (25 % of operations, 50 % of FLOPs, 1 rejected)"


def test_the_table_has_the_worst_of_all_tensors_and_says_what_is_not_established(results_table, run: Path) -> None:
    lines = results_table.table({("nets", "float32"): run}, ["strict16", "nvidia_tensor_core"]).splitlines()
    assert lines[0] == "|  | nets |"
    assert "| published chips that it fits | 1 of 1: nvidia_tensor_core |" in lines
    assert "| operations → kernel launches (float32) | 70 → 10 (6 library; 4 kernels written) |" in lines
    told = "within_floor: 1.25 of 4; an error above 1.0e-06 of RMS is seen"
    assert f"| numbers in float32 | {told} |" in lines
    assert "| speed-up in float32 | not established (1.50 (1.20 to 1.80)) |" in lines
    assert lines[-2:] == ["| strict16 | 2 (100 % of operations, 100 % of FLOPs) |", "| nvidia_tensor_core | fits |"]


def test_the_readme_has_the_figures_of_the_page(results_table) -> None:
    made = results_table.readme(results_table.PAGE.read_text(encoding="utf-8"))
    assert made in (results_table.PAGE.parents[2] / "README.md").read_text(encoding="utf-8"), made


def test_a_sweep_that_is_not_done_is_refused(
    results_table, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "summary.json").unlink()
    monkeypatch.setattr(sys, "argv", ["results_table.py", str(run.parent)])
    with pytest.raises(SystemExit) as ended:
        results_table.main()
    assert ended.value.code == 2 and "start the sweep's command again" in capsys.readouterr().err
