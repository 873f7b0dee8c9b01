"""``inductor-debug check`` on stored captures."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from pipeline.cli import main
from stages.graphs import GraphRecord, NodeRecord, TensorRecord


def stored_run(folder: Path, width: int, target: str = "aten.relu.default") -> Path:
    """A run's folder with one captured graph, as capture stores it."""
    x = TensorRecord([4, width], "float32", [width, 1], "cpu")
    nodes = [
        NodeRecord("x", "placeholder", "x", outputs=[x], role="input"),
        NodeRecord("y", "call_function", target, args=[{"node": "x"}], inputs=["x"], outputs=[x], flops=4 * width),
        NodeRecord("output", "output", "output", inputs=["y"]),
    ]
    (folder / "capture/graphs").mkdir(parents=True)
    graph = GraphRecord("g0.forward", "forward", nodes).to_json()
    (folder / "capture/graphs/g0.forward.json").write_text(json.dumps(graph))
    (folder / ".hydra").mkdir()
    (folder / ".hydra/config.yaml").write_text("accel: {name: mine, alignment: 8}\n")
    (folder / "run.log").write_text("")
    return folder


def test_a_grid_gives_one_row_a_point_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = stored_run(tmp_path / "run", 24), tmp_path / "out"
    words = ["--grid", "alignment=1:64", "--grid", "alignment_dims=last,all", "--out", str(out)]
    assert main(["check", str(run), *words]) == 0
    table = pd.read_csv(out / "grid.csv")
    assert len(table) == 128 and list(table.columns[:3]) == ["alignment", "alignment_dims", "findings"]
    for row in table.to_dict("records"):
        sizes = [24] if row["alignment_dims"] == "last" else [4, 24]
        assert row["findings"] == 2 * sum(size % row["alignment"] > 0 for size in sizes), row
    assert (out / "grid.png").read_bytes().startswith(b"\x89PNG")
    assert f"stored in {out}" in capsys.readouterr().out


def test_the_runs_own_profile_is_checked_unless_another_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stored_run(tmp_path / "run", 24)
    arguments = ["--grid", "max_rank=1,2", "--out", str(tmp_path / "out"), "--format", "json"]
    for more, findings in (([], [2, 0]), (["alignment=16"], [4, 2]), (["--accel", "strict16"], [4, 2])):
        assert main(["check", str(run), *arguments, *more]) == 0
        assert [row["findings"] for row in json.loads(capsys.readouterr().out)] == findings


def test_what_a_set_of_models_needs_of_a_chip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        stored_run(tmp_path / "a", 24),
        stored_run(tmp_path / "b", 48),
        stored_run(tmp_path / "c", 8, "aten.exp.default"),
    ]
    words = ["--models", "--out", str(tmp_path / "out"), "denied=[aten.exp]", "--format", "json"]
    assert main(["check", *map(str, runs), *words]) == 0
    relu, exp = json.loads(capsys.readouterr().out)
    assert (relu["operation"], relu["models"], relu["calls"], relu["refused"]) == ("aten.relu.default", 2, 2, 0)
    assert (relu["largest_size"], relu["example_shape"]) == (48, "4x48")
    assert relu["flops_share"] == pytest.approx(72 / 80)
    assert (exp["operation"], exp["models"], exp["refused"]) == ("aten.exp.default", 1, 1)
    assert len(pd.read_csv(tmp_path / "out/coverage.csv")) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "got 1 runs, 0 --grid and no --models"),
        (["--grid", "alignment"], "--grid: got 'alignment'"),
        (["--grid", "alignmnt=8"], "--grid: got 'alignmnt'; valid: alignment,"),
        (["--grid", "alignment=9:1"], "with A at most B"),
        (["--grid", "alignment=0:3"], "accel.alignment: got 0"),
        (["--grid", "alignment=8", "--models"], "valid: one run with --grid, or runs with --models"),
        (["--grid", "alignment=8", "--accel", "strict17"], "strict16"),
        (["--grid", "alignment=8", "max_rnk=3"], "max_rnk"),
        (["--grid", "alignment=1:1000", "--grid", "max_rank=1:1000"], "at most 100,000"),
    ],
)
def test_what_can_not_be_meant_is_exit_code_2(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(stored_run(tmp_path / "run", 24)), *words]) == 2
    assert told in capsys.readouterr().err


def test_a_run_without_a_capture_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stored_run(tmp_path / "run", 24)
    (run / "capture/graphs/g0.forward.json").write_text("{}")
    assert main(["check", str(run), "--grid", "alignment=8"]) == 2
    assert "can't be read" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "nowhere"), "--grid", "alignment=8"]) == 2


def test_checking_imports_no_torch(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "run", 24)
    code = (
        "import sys; from pipeline.cli import main\n"
        f"assert main(['check', {str(run)!r}, '--grid', 'alignment=1:4', '--out', {str(tmp_path / 'out')!r}]) == 0\n"
        "assert 'torch' not in sys.modules and 'hydra' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
