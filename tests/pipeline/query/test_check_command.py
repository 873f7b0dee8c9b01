"""``inductor-debug check`` on stored captures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from stored_captures import stored_run

from inductor_debug.pipeline.cli import main
from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.profile import Profile, stored_profile, validate_profile
from inductor_debug.stages.constrain.coverage import coverage
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord


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


def test_a_grid_counts_the_operations_that_the_summary_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = str(stored_run(tmp_path / "run", 24)), str(tmp_path / "out")
    (once,) = rows_of(capsys, run, "accel=warn16", "--out", out)[0]
    (point,) = rows_of(capsys, run, "accel=warn16", "--grid", "alignment=16", "--out", out)[0]
    assert (once["findings"], once["nodes"], point["findings"], point["nodes"]) == (2, 1, 2, 1)


def test_the_runs_own_profile_is_checked_unless_another_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stored_run(tmp_path / "run", 24)
    arguments = ["--grid", "max_rank=1,2", "--out", str(tmp_path / "out"), "--format", "json"]
    for more, findings in (([], [2, 0]), (["alignment=16"], [4, 2]), (["--accel", "strict16"], [4, 2])):
        assert main(["check", str(run), *arguments, *more]) == 0
        assert [row["findings"] for row in json.loads(capsys.readouterr().out)] == findings


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[dict[str, object]], str]:
    assert main(["check", *words, "--format", "json"]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


@pytest.mark.parametrize(("strict", "code"), [("true", 1), ("false", 0)])
def test_what_a_graph_break_hides_is_not_called_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: str, code: int
) -> None:
    run, out = stored_run(tmp_path / "run", 64), ["--out", str(tmp_path / "out")]
    (run / "capture/breaks.json").write_text(json.dumps([{"reason": "data-dependent operator"}]))
    assert main(["check", str(run), "accel=strict16", f"strict={strict}", *out]) == code
    told = capsys.readouterr().err
    first = told.partition("\n")[0]
    assert first.endswith(" What runs outside the graphs was not checked (1 graph break).")
    assert first.startswith("Whether the model fits the profile strict16 is not established. ") == (strict == "true")
    assert ("not established" in told) == (strict == "true")
    assert first.startswith("The model fits the profile strict16: no rule is broken. ") == (strict == "false")
    for words in (["--grid", "alignment=16"], ["--models", str(run)]):
        assert main(["check", str(run), "accel=strict16", *words, *out]) == 0
        assert "what runs outside the graphs is not counted (1 graph break)" in capsys.readouterr().err
    (run / "capture/breaks.json").write_text("[")
    assert main(["check", str(run), "accel=strict16", *out]) == 2
    told = capsys.readouterr().err
    again = f"Try: inductor-debug rerun {run} 'stages=[capture]'\n"
    assert "capture/breaks.json: not JSON" in told and told.count("Try: ") == 1 and told.endswith(again)


def test_a_grid_over_bytes_takes_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = str(stored_run(tmp_path / "run", 512)), str(tmp_path / "out")  # tensors of 8 KiB
    for words, sizes in (("4KiB,8KiB", [4096, 8192]), ("4KiB:12KiB:4KiB", [4096, 8192, 12288]), ("8191", [8191])):
        rows, _ = rows_of(capsys, run, "--grid", f"max_tensor_bytes={words}", "--out", out)
        assert [row["max_tensor_bytes"] for row in rows] == sizes
        assert [row["findings"] for row in rows] == [2 * (size < 8192) for size in sizes]
    assert rows_of(capsys, run, "--grid", "max_rank=2", "--out", out, "max_tensor_bytes=4KiB")[0][0]["findings"] == 2


def test_a_profile_of_the_users_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out, conf = stored_run(tmp_path / "run", 24), str(tmp_path / "out"), tmp_path / "conf"
    (conf / "accel").mkdir(parents=True)
    (conf / "accel/my_chip.yaml").write_text("name: my_chip\nalignment: 5\n")
    words = [str(run), "--grid", "max_rank=2", "--out", out, "--config-dir", str(conf)]
    for chosen in (["accel=my_chip"], ["--accel", "my_chip"], ["accel=strict16"]):
        assert [row["findings"] for row in rows_of(capsys, *words, *chosen)[0]] == [2]
    assert [row["findings"] for row in rows_of(capsys, *words)[0]] == [0]
    assert main(["check", *words, "accel=my_chp"]) == 2
    assert "accel: got 'my_chp' (in " in (told := capsys.readouterr().err) and "valid: my_chip, " in told


def test_with_no_profile_the_rules_that_the_runs_backend_declared_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, words = stored_run(tmp_path / "run", 24), ["--grid", "max_rank=2", "--out", str(tmp_path / "out")]
    config = "model: {name: m}\naccel: {name: none}\nbackend: {name: chip, adapter: my.Chip}\ndtype: d\nmode: m\n"
    (run / ".hydra/config.yaml").write_text(config)
    rows, told = rows_of(capsys, str(run), *words)
    assert rows[0]["findings"] == 0 and "the rules that the backend chip may declare are not checked" in told
    (run / "constrain").mkdir()
    declared = stored_profile(Profile("chip", True, (Rule("alignment", value=16),))) | {"own_check": True}
    (run / "constrain/declared.json").write_text(json.dumps(declared))
    rows, told = rows_of(capsys, str(run), *words)
    assert rows[0]["findings"] == 2 and "those that the backend chip declares; what its own check would find" in told
    assert rows_of(capsys, str(run), *words, "alignment=8")[0][0]["findings"] == 0
    rows, told = rows_of(capsys, str(run), *words, "accel=warn8")
    assert rows[0]["findings"] == 0 and told == ""
    models = ["--models", "--out", str(tmp_path / "out")]
    assert [row["refused"] for row in rows_of(capsys, str(run), *models)[0]] == [0]
    (run / "constrain/declared.json").write_text("{}")
    assert (
        main(["check", str(run), *words]) == 2
        and "declared.json: its content is a mapping without 'name'" in capsys.readouterr().err
    )


def test_the_mocks_variables_are_those_of_the_run_or_of_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = stored_run(tmp_path / "run", 24), ["--out", str(tmp_path / "out")]
    (run / ".hydra/config.yaml").write_text("accel: {name: mock, alignment: 1, strict: false}\n")
    (run / "manifest.json").write_text(json.dumps({"environment": {"MOCK_ALIGNMENT": "16", "PYTHONHASHSEED": "0"}}))
    own, here = [str(run), *out], [str(run), *out, "accel=mock", "strict=false"]

    def alignments(*words: str) -> int:
        rows, err = rows_of(capsys, *words)
        told.append(err)
        return sum(int(str(row["findings"])) for row in rows if row["rule"] == "alignment")

    told: list[str] = []
    assert (alignments(*own), alignments(*here)) == (2, 0)  # as the run found; with nothing set here
    assert (
        "the profile mock is as it was in the run, with MOCK_ALIGNMENT=16\n" in told[0] and "in the run" not in told[1]
    )
    assert alignments(*own, "alignment=8") == 0  # an edit of what the run was checked against
    monkeypatch.setenv("MOCK_ALIGNMENT", "7")
    assert (alignments(*own), alignments(*here)) == (2, 2)
    assert "what is set here is not applied. Try: accel=mock" in told[3]
    grid = ["--grid", "alignment=3,7"]
    assert [row["findings"] for row in rows_of(capsys, *here, *grid)[0]] == [0, 2]
    assert [row["findings"] for row in rows_of(capsys, *own, *grid)[0]] == [0, 2]
    for value, code in (("0", 2), ("many", 2), ("8", 0)):
        monkeypatch.setenv("MOCK_ALIGNMENT", value)
        assert main(["check", *here]) == code
        assert (f"MOCK_ALIGNMENT: got '{value}' (in the environment)" in capsys.readouterr().err) == (code == 2)
    monkeypatch.setenv("MOCK_STRCT", "1")
    assert main(["check", *here]) == 2 and "MOCK_STRCT" in capsys.readouterr().err
    assert main(["check", *own]) == 0
    (run / "manifest.json").write_text("{")
    capsys.readouterr()
    assert main(["check", *own]) == 2 and "manifest.json: not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--grid", "nonsense"], [], ["--models", "--grid", "alignment=8"],
                                   ["--grid", "alignment=8", "accel=strict17"]])  # fmt: skip
def test_a_run_that_is_not_there_is_told_first(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "nowhere"), *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"RUN: got '{tmp_path / 'nowhere'}'; valid: a run's folder")
    assert told.endswith("Try: inductor-debug list\n")


def test_a_value_that_no_profile_takes_is_answered_with_a_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(stored_run(tmp_path / "run", 24)), "--grid", "alignment=0:4"]) == 2
    told = capsys.readouterr().err
    assert "alignment: got 0" in told and told.endswith("Try: --grid alignment=1:128\n")


def test_a_folder_with_an_equals_sign_is_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stored_run(tmp_path / "model=bert", 24)
    assert rows_of(capsys, str(run), "--grid", "alignment=16", "--out", str(tmp_path / "out"))[0][0]["findings"] == 2


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
    assert (relu["largest_size"], relu["example"]) == (48, "4x48 -> 4x48")
    assert relu["flops_share"] == pytest.approx(72 / 80)
    assert (exp["operation"], exp["models"], exp["refused"]) == ("aten.exp.default", 1, 1)
    assert len(pd.read_csv(tmp_path / "out/coverage.csv")) == 2


def test_coverage_tells_operands_and_every_result() -> None:
    def made(dtype: str, *shape: int | str, hints: list[int] | None = None) -> TensorRecord:
        return TensorRecord(list(shape), dtype, [1] * len(shape), "cpu", hints=hints)

    weight, ids = made("float32", 512, 4), made("int64", 3)
    nodes = [
        NodeRecord("w", "placeholder", "w", outputs=[weight], role="parameter"),
        NodeRecord("i", "placeholder", "i", outputs=[ids], role="input"),
        NodeRecord("e", "call_function", "aten.embedding.default", inputs=["w", "i"], outputs=[made("float32", 3, 4)]),
        NodeRecord("t", "call_function", "aten.topk.default", inputs=["w"],
                   outputs=[made("float32", 512, 2), made("int64", 512, 2)]),
        NodeRecord("n", "call_function", "aten.arange.default", outputs=[made("int64", "u0")]),
    ]  # fmt: skip
    graph = GraphRecord("g0.forward", "forward", nodes, {"u0": {"hint": None, "min": 0, "max": 100}})
    table = coverage({"m": [graph]}, validate_profile(AccelConfig(max_size=64, denied=["aten.topk"])))
    rows = {row["operation"]: row for row in table.to_dict("records")}
    embedding, topk, arange = (rows[f"aten.{name}.default"] for name in ("embedding", "topk", "arange"))
    assert (embedding["reads"], embedding["makes"], embedding["example"]) == (
        "float32 int64",
        "float32",
        "512x4, 3 -> 3x4",
    )
    assert (embedding["largest_size"], embedding["largest_bytes"], embedding["least_rank"]) == (512, 8192, 1)
    assert (topk["reads"], topk["makes"], topk["example"]) == ("float32", "float32 int64", "512x4 -> 512x2, 512x2")
    assert [(row["refused"], row["undecided"]) for row in (embedding, topk, arange)] == [(0, 0), (1, 0), (0, 1)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--grid", "alignment"], "--grid: got 'alignment'"),
        (["--grid", "alignmnt=8"], "--grid: got 'alignmnt'; valid: alignment,"),
        (["accel.alignmnt=8"], "numerics, peaks.\nTry: accel.alignment=8"),
        (["--grid", "alignment=9:1"], "with A at most B"),
        (["--grid", "alignment=0:3"], "accel.alignment: got 0"),
        (["--grid", "alignment=8", "--models"], "valid: one run, alone or with --grid, or runs with --models"),
        (["--grid", "alignment=8", "--accel", "strict17"], "strict16"),
        (["--grid", "alignment=8", "max_rnk=3"], "max_rnk"),
        (["--grid", "alignment=1:1000", "--grid", "max_rank=1:1000"], "at most 100,000"),
        (["--grid", "max_tensor_bytes=1:1TiB"], "at most 100,000"),
        (["--grid", "max_tensor_bytes=1TiB:2TiB,1"], "at most 100,000"),
        (["--grid", "max_tensor_bytes=1M"], "got '1M' in 'max_tensor_bytes=1M'; valid: a size (a positive number of"),
        (["--grid", "max_tensor_bytes=1M"], "Try: --grid max_tensor_bytes=1MiB:8MiB:1MiB"),
        (["--grid", "alignment=1MiB"], "got '1MiB' in 'alignment=1MiB'; valid: a whole number"),
        (["--grid", "alignment=1:9:0"], "A:B:STEP"),
        (["--grid", "max_rnk=2:4"], "Try: --grid max_rank=2:6"),
        (["--grid", "alignment=8", "accel=strict16", "--accel", "strict8"], "got the profiles strict16, strict8"),
        (["--grid", "alignment=8", "accel=my_chip", "--config-dir", "nowhere"], "--config-dir: no folder"),
    ],
)
def test_what_can_not_be_meant_is_exit_code_2(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(stored_run(tmp_path / "run", 24)), *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("words", [["alignment=16.5"], ["alignment=16.5", "accel=strict8"]])
def test_an_override_that_can_not_be_is_named(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(stored_run(tmp_path / "run", 24))
    assert main(["check", run, *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("accel.alignment: got 16.5 (in accel.alignment=16.5): ") and ".yaml" not in told
    assert told.endswith("\nTry: accel.alignment=16\n")
    assert main(["check", run, "denied=[*]"]) == 2 and "got 'denied=[*]'" in capsys.readouterr().err


def test_exploring_never_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(stored_run(tmp_path / "run", 24)), "accel=strict16", "--out", str(tmp_path / "out")]
    assert main(["check", *words]) == 1
    for more in (["--grid", "alignment=16"], ["--models"]):
        assert main(["check", *words, *more]) == 0
    capsys.readouterr()
    assert main(["check", "--help"]) == 0
    assert "--grid and --models explore, and give 0 whatever" in " ".join(capsys.readouterr().out.split())


def test_the_lines_that_would_repay_a_change_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stored_run(tmp_path / "run", 24)
    file = run / "capture/graphs/g0.forward.json"
    graph = json.loads(file.read_text())
    graph["nodes"][1]["source"] = {"file": "net.py", "line": 7, "code": "y = x.relu()", "function": "forward"}
    file.write_text(json.dumps(graph))
    assert main(["check", str(run), "accel=warn16", "--out", str(tmp_path / "out")]) == 0
    assert "net.py:7                   y = x.relu()  1         alignment (pad)  128" in capsys.readouterr().out


def test_models_of_a_users_own_have_their_builders_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [stored_run(tmp_path / name, 24) for name in "ab"]
    for run in runs:
        config = f"model: {{name: custom, build: {{_target_: nets.{run.name}}}}}\naccel: {{name: none}}\n"
        (run / ".hydra/config.yaml").write_text(
            config + "backend: {name: eager, adapter: eager}\ndtype: d\nmode: inference\n"
        )
    rows, _ = rows_of(capsys, *map(str, runs), "--models", "--out", str(tmp_path / "out"))
    assert rows[0]["names"] == "0:custom-nets.a-inference 1:custom-nets.b-inference"


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["denied=[aten.tpok]"], "Try: accel.denied=[aten.topk]"),
        (["allowed=[aten.relu,aten.exq]"], "accel.allowed: got 'aten.exq', which torch "),
        (["denied=[aten.linagl_*]"], "aten.linalg_"),
        (["denied=[torch.nn.functional.rleu]"], "Try: accel.denied=[torch.nn.functional.relu]"),
        (["denied=[operator.ad]"], "operator.add"),
        (["accel=chip.yaml"], "accel.rules[0].operations: got 'aten.adddmm'"),
        (["accel=chip.yaml", "--grid", "max_rank=2"], "aten.addmm"),
        (["accel=chip.yaml", "--models"], "aten.addmm"),
        (["accel=without.yaml"], "operations: got 'aten.emmbedding'"),
    ],
)
def test_an_operation_that_torch_lacks_is_exit_code_2(
    words: list[str], nearest: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored_run(tmp_path / "run", 24)
    Path("chip.yaml").write_text("rules: [{rule: alignment, value: 16, operations: [aten.adddmm]}]\n")
    Path("without.yaml").write_text("rules: [{rule: dtype, value: [int8], operations: ['!aten.emmbedding']}]\n")
    assert main(["check", "run", *words]) == 2
    assert nearest in capsys.readouterr().err


def test_an_operation_that_torch_has_is_looked_up_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(stored_run(tmp_path / "run", 24)), "--out", str(tmp_path / "out")]
    told = rows_of(capsys, *words, "denied=[aten.topk,operator.add,aten::exp]")[1]
    assert rows_of(capsys, words[0], *words[1:], "denied=[my_vendor.fused]")[0] == []
    assert main(["check", *words, "denied=[atne.topk]"]) == 2  # not far enough from aten
    assert "torch was imported to look up aten.topk, operator.add, aten::exp, which" in told


def test_a_run_without_a_capture_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stored_run(tmp_path / "run", 24)
    (run / "capture/graphs/g0.forward.json").write_text("{}")
    assert main(["check", str(run), "--grid", "alignment=8"]) == 2
    assert "its content is a mapping without 'id'" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "nowhere"), "--grid", "alignment=8"]) == 2


def test_checking_imports_no_torch(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "run", 24)
    code = (
        "import sys; from inductor_debug.pipeline.cli import main\n"
        f"words = ['check', {str(run)!r}, '--out', {str(tmp_path / 'out')!r}]\n"
        "assert main(words) == 0 and main([*words, '--grid', 'alignment=1:4']) == 0\n"
        "assert main([*words, 'denied=[aten::relu,aten.rel*]']) == 0 and main([*words, 'accel=arm_ethos_u55']) == 0\n"
        "assert 'torch' not in sys.modules and 'hydra' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_custom_rule_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "my_own_rules.py").write_text(
        "def every_call(graph):\n"
        "    return [{'node': node.name, 'message': 'x'} for node in graph.nodes if node.op == 'call_function']\n"
    )
    (tmp_path / "chip.yaml").write_text("rules: [{rule: custom, value: {_target_: my_own_rules.every_call}}]\n")
    stored_run(tmp_path / "run", 24)
    words = ["check", "run", "accel=chip.yaml", "--grid", "max_rank=2", "--out", "out", "--format", "json"]
    code = f"import sys; sys.path.remove(''); from inductor_debug.pipeline.cli import main; sys.exit(main({words!r}))"
    root = str(Path(__file__).resolve().parents[3])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": root},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["findings_custom"] == 1


def test_a_run_alone_is_checked_against_one_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = str(stored_run(tmp_path / "run", 24)), tmp_path / "out"
    for words, code, findings in (([], 0, 0), (["accel=warn16"], 0, 2), (["accel=strict16"], 1, 2)):
        assert main(["check", run, *words, "--out", str(out), "--format", "json"]) == code
        printed = capsys.readouterr()
        assert sum(row["findings"] for row in json.loads(printed.out)) == findings
        assert len(pd.read_csv(out / "violations.csv")) == findings
        assert (out / "summary.csv").is_file()
        name = words[0].removeprefix("accel=") if words else "mine"
        wrong = f"The model does not fit the profile {name}: 2 violations of the rule alignment. "
        wrong += "The last dimension of activations and parameters must be a multiple of 16 elements, or 1."
        told = wrong if findings else f"The model fits the profile {name}: no rule is broken."
        assert told in printed.err.splitlines()
