"""``inductor-debug repro``: the scripts of stored runs are listed, run, and handed over."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import minify_backends
import pytest
from stored_repros import INDUCTOR, REFUSED, REFUSING, normalizes, record, store, violation, whole

from inductor_debug.models.errors import DamagedError
from inductor_debug.pipeline import cli
from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.query.handover.owner import (
    AOT,
    CHAIN,
    DYNAMO,
    TRITON,
    Step,
    innermost,
    owner_of,
    through_each,
)
from inductor_debug.pipeline.query.handover.stored import StoredRepro
from inductor_debug.pipeline.run.commands import entry
from inductor_debug.stages.artifacts.minimization import MinifiedRecord
from inductor_debug.stages.encoding import jsonable

TORCH_INDUCTOR = CHAIN["inductor"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return whole(tmp_path / "day/run")


def said(capsys: Capture, *words: object, code: int = 0) -> str:
    """The standard output of a command that ends with a code."""
    assert cli.main(["repro", *map(str, words)]) == code
    return capsys.readouterr().out


def refused(capsys: Capture, *words: object) -> str:
    assert cli.main(["repro", *map(str, words)]) == entry.EXIT_CONFIGURATION
    return capsys.readouterr().err


def stored(folder: Path, name: str = "") -> StoredRepro:
    opened = open_run(folder)
    return next(StoredRepro(opened, item) for item in opened.head.repros or [] if item.path.endswith(name))


# listed and picked


def test_the_scripts_of_a_run_are_listed_with_whose_failure_they_are(run: Path, capsys: Capture) -> None:
    rows = json.loads(said(capsys, run, "--format", "json"))
    assert [row["path"] for row in rows] == [
        "repros/plain.py",
        "repros/numbers.py",
        "repros/alignment-g0.forward-relu.py",
    ]
    assert [row["owner"] for row in rows] == [
        *["the backend minify_backends (not established)"] * 2, "the rule alignment of the profile strict4"
    ]  # fmt: skip
    assert rows[0]["fingerprint"] == rows[1]["fingerprint"] != rows[2]["fingerprint"]
    assert (rows[0]["failure"], rows[0]["met_in"], rows[2]["verified"]) == (REFUSED, "day/old", False)
    table = said(capsys, run)
    assert REFUSED in table and "def program" not in table  # three scripts: none is the one


@pytest.mark.parametrize("name", ["plain.py", "repros/plain.py", "day/run/repros/plain.py"])
def test_a_name_picks_a_script_and_nothing_else_is_printed(name: str, run: Path, capsys: Capture) -> None:
    assert said(capsys, run, name) == (run / "repros/plain.py").read_text()


def test_a_fingerprint_picks_the_best_script_of_the_failure(run: Path, capsys: Capture) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["repros"][0]["verified"] = False
    (run / "summary.json").write_text(json.dumps(summary))
    known = summary["repros"][0]["fingerprint"]
    assert said(capsys, run, known[:6]) == (run / "repros/numbers.py").read_text()
    assert "valid:" in refused(capsys, run, known[:3]) and "plain.py" in refused(capsys, run, "none.py")


def test_the_only_script_is_printed_below_its_row(run: Path, capsys: Capture) -> None:
    text = normalizes(REFUSING)
    one = store(run.parent / "one", {"plain.py": text}, [record("plain.py", text)])
    shown = said(capsys, one)
    assert shown.startswith("path ") and shown.endswith(text)


def test_a_run_of_an_earlier_version_is_read(run: Path, capsys: Capture) -> None:
    old = {"path": "repros/plain.py", "failure_class": "error", "nodes": 1, "verified": True, "reason": ""}
    folder = store(run.parent / "old", {"plain.py": normalizes(REFUSING)}, [old])
    (row,) = json.loads(said(capsys, folder, "--format", "json"))
    assert (row["failure"], row["fingerprint"], row["met_in"]) == (None, None, None)
    rows = json.loads(said(capsys, run.parent, "--format", "json"))
    assert sorted(len(row["paths"]) for row in rows) == [1, 1, 2]  # of the old run, the rule's, and the failure's


def test_a_sweep_has_one_row_for_each_failure(run: Path, capsys: Capture) -> None:
    rule, text = violation()
    for name in ("1", "2"):
        store(run.parent / name, {rule.path.rpartition("/")[2]: text}, [rule])
    (run.parent / "damaged").mkdir()
    (run.parent / "damaged/run.log").touch()
    (run.parent / "damaged/summary.json").write_text('{"cut')
    assert cli.main(["repro", str(run.parent), "--format", "json"]) == 0
    out, told = capsys.readouterr()
    rows = {row["fingerprint"]: row for row in json.loads(out)}
    assert {name: row["runs"] for name, row in rows.items()} == {record("x", normalizes(REFUSING)).fingerprint: 1,
                                                                rule.fingerprint: 3}  # fmt: skip
    assert sorted(rows[rule.fingerprint]["paths"]) == sorted(
        str(run.parent / name / rule.path) for name in ("1", "2", "run")
    )
    assert "left out" in told and "damaged" in told
    assert said(capsys, run.parent, rule.fingerprint) == text


def test_a_run_without_scripts_and_no_run_say_so(run: Path, capsys: Capture) -> None:
    empty = store(run.parent / "empty", {}, [])
    assert "no script" in said(capsys, empty)
    assert "no script was left there: each stage passed; valid: " in refused(capsys, empty, "--run", "--yes")
    summary = json.loads((empty / "summary.json").read_text())
    stages = [{"name": name, "status": status, "seconds": 1.0, "message": ""}
              for name, status in (("capture", "passed"), ("lower", "skipped"), ("kerneldiff", "failed"))]  # fmt: skip
    (empty / "summary.json").write_text(json.dumps(summary | {"stages": stages}))
    assert "no script was left there: lower skipped; kerneldiff failed" in said(capsys, empty)
    assert "no folder" not in refused(capsys, run.parent / "nothing")


@pytest.mark.parametrize("path", ["../../secret.py", "repros/../../secret.py", "repros/sub/x.py", "summary.json"])
def test_a_path_out_of_the_scripts_folder_is_damage(path: str, run: Path) -> None:
    (run.parent.parent / "secret.py").write_text("secret")
    opened = open_run(run)
    with pytest.raises(DamagedError, match="repros"):
        assert not StoredRepro(opened, record(path.removeprefix("repros/"), "") if path.startswith("repros/") else
                               type(record("x", ""))(path)).text  # fmt: skip


def test_numbers_elsewhere_and_a_text_that_is_no_script_are_damage(run: Path) -> None:
    text = (run / "repros/numbers.py").read_text()
    (run / "repros/numbers.py").write_text(text.replace("'repro.safetensors'", "'../../secret'"))
    with pytest.raises(DamagedError, match="secret"):
        stored(run, "numbers.py").script()
    (run / "repros/numbers.py").write_text("def (")
    with pytest.raises(DamagedError, match="no Python"):
        owner_of(stored(run, "numbers.py"))


@pytest.mark.parametrize(
    "words",
    [["--run", "--owner"], ["--run", "--export", "pytest"], ["--owner", "--export", "pytest"], ["--out", "x.py"]],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], run: Path, capsys: Capture) -> None:
    assert refused(capsys, run, "plain.py", *words).startswith("repro: got --")


# run


def test_nothing_is_executed_before_the_answer_is_yes(run: Path, capsys: Capture) -> None:
    mark = run / "executed"
    (run / "repros/plain.py").write_text(f"open({str(mark)!r}, 'w')\n" + (run / "repros/plain.py").read_text())
    for word in ("--run", "--owner"):
        told = refused(capsys, run, "plain.py", word)
        assert (
            f"{run}/repros/plain.py: executes this script" in told
            and "imports minify_backends" in told
            and f"plain.py {word} --yes" in told
        )
    for words in ([], ["--export", "pytest"], ["--export", "markdown"]):
        said(capsys, run, "plain.py", *words)
    assert not mark.exists()


@pytest.mark.slow
def test_the_exit_code_of_a_script_is_passed_on(run: Path, capsys: Capture) -> None:
    assert f"FOUND {REFUSED}" in said(capsys, run, "numbers.py", "--run", "--yes").splitlines()
    found = json.loads(said(capsys, run, "numbers.py", "--run", "--yes", "--format", "json"))
    assert found["exit_code"] == 0 and f"FOUND {REFUSED}" in found["output"].splitlines()
    text = stored(run, "plain.py").text
    mended, without = stored(run, "plain.py").through("eager"), text.replace("import refusing", "import gone")
    for change, code in ((mended, 1), (without, 3), ("import sys\nsys.exit(1)", 3), ("import os\nos.abort()", 3)):
        (run / "repros/plain.py").write_text(change)
        said(capsys, run, "plain.py", "--run", "--yes", code=code)


def test_what_a_command_decides_is_neither_run_nor_handed_over(run: Path, capsys: Capture) -> None:
    """The script ends with 0 where any failure shows, or with 1: it does not know what the command looks for."""
    text = normalizes(REFUSING)
    known = dataclasses.replace(record("plain.py", text), failure="asked", failure_class="asked")
    folder = store(run.parent / "asked", {"plain.py": text}, [known])
    (folder / ".hydra").mkdir(exist_ok=True)
    (folder / ".hydra/config.yaml").write_text("stages: {minify: {command: [sh, -c, 'grep -q tanh {}']}}")
    assert said(capsys, folder, "plain.py") == text
    for words in (["--run"], ["--owner"], ["--export", "pytest"], ["--export", "markdown"]):
        told = refused(capsys, folder, *words)
        assert "asked a command" in told and f"Try: sh -c 'grep -q tanh {folder}/repros/plain.py'" in told


# whose failure it is


def steps(**shows: bool | None) -> list[Step]:
    layers = {"eager": DYNAMO, "aot_eager": AOT, "inductor": TORCH_INDUCTOR, "own": "the backend acme"}
    return [Step(name, layers[name], found, "FOUND …") for name, found in shows.items()]


@pytest.mark.parametrize(
    ("made", "layer", "established", "ruled_out"),
    [
        (steps(own=True, eager=True), DYNAMO, True, set()),
        (steps(own=True, eager=False, aot_eager=True), AOT, True, {DYNAMO}),
        (steps(own=True, eager=False, aot_eager=False, inductor=True), TORCH_INDUCTOR, True, {DYNAMO, AOT}),
        (steps(own=True, eager=False, aot_eager=False, inductor=False), "the backend acme", True,
         {DYNAMO, AOT, TORCH_INDUCTOR}),
        (steps(own=True, eager=None, aot_eager=True), AOT, False, set()),
        (steps(own=False), "the backend minify_backends", False, set()),
        (steps(own=None), "the backend minify_backends", False, set()),
    ],
)  # fmt: skip
def test_the_first_layer_that_shows_it_owns_it(
    made: list[Step], layer: str, established: bool, ruled_out: set[str], run: Path
) -> None:
    found = owner_of(stored(run, "plain.py"), made)
    assert (found.layer, found.established) == (layer, established)
    assert set(found.ruled_out) - {"PyTorch's own operators"} == ruled_out
    assert not set(found.ruled_out) & set(found.open)


FRAME = '  File "{}", line 3, in {}\n    x\n'


@pytest.mark.parametrize(
    ("files", "layer"),
    [
        (["/p/torch/_dynamo/convert_frame.py", "/p/torch/_dynamo/bytecode.py"], DYNAMO),
        (["/p/torch/_dynamo/a.py", "/p/torch/_functorch/b.py"], AOT),
        (["/p/torch/_inductor/graph.py", "/p/torch/_subclasses/fake.py"], TORCH_INDUCTOR),
        (["/p/torch/_inductor/runtime/a.py", "/p/triton/compiler/compiler.py"], TRITON),
        (["/p/torch/_inductor/a.py", "/home/me/minify_backends.py"], "the backend minify_backends"),
        (["/home/me/net.py"], None),
    ],
)
def test_a_traceback_names_the_layer_nearest_to_where_it_was_raised(
    files: list[str], layer: str | None, run: Path
) -> None:
    text = normalizes(REFUSING)
    frames = "".join(FRAME.format(file, f"f{at}") for at, file in enumerate(files))
    last = f"{files[-1].rpartition('/')[2]}:f{len(files) - 1}"
    made = record("plain.py", text, f"error ValueError in x.py:y, {last}")
    found = innermost(frames + FRAME.format("/p/torch/_dynamo/later.py", "other"), StoredRepro(open_run(run), made))
    assert (found and found[1]) == layer
    assert innermost(frames, StoredRepro(open_run(run), record("plain.py", text, "error E in a.py:b, c.py:d"))) is None


def place(node: str, kernel: str) -> dict[str, Any]:
    return {"graph": "g0.forward", "node": node, "target": "aten.x", "operations": [node], "kernel": kernel}


def test_the_files_of_a_run_are_evidence(run: Path) -> None:
    text = normalizes(INDUCTOR, "defect")
    culprit = {"place": place("norm", "triton_poi_0:3"), "kind": "operation", "ratio": 9e4, "slope": None, "call": 0,
               "index": [1, 2], "got": 3.5, "expected": 4.5}  # fmt: skip
    localized = {"kind": "operation", "method": "observed", "message": "", "culprits": [culprit]}
    diagnosis = {"verdict": "defect", "localized": localized}
    made = record("plain.py", text, "defect")
    seen = store(run.parent / "seen", {"plain.py": text}, [made], **{"kerneldiff/diagnosis.json": diagnosis})
    found = owner_of(stored(seen))
    assert str(found) == TORCH_INDUCTOR and "triton_poi_0:3" in found.because[0]
    assert {DYNAMO, AOT} <= set(found.ruled_out) and "kerneldiff/diagnosis.json" in found.ruled_out[DYNAMO]
    bisection = {"verdict": "subsystem", "answer": "it is AOTAutograd", "subsystem": "aot_autograd", "applications": [],
                 "fault": {"kind": "defect", "failure": "", "message": ""}, "pattern": None, "remedy": None,
                 "established": {"chain": {"dynamo": {"probe": 2, "fault": "gone"}}}}  # fmt: skip
    both = {"kerneldiff/diagnosis.json": diagnosis, "bisect/bisect.json": bisection}
    assert owner_of(stored(store(run.parent / "both", {"plain.py": text}, [made], **both))).layer == AOT
    bisection["fault"]["kind"] = "raised"  # another failure: it says nothing of this one
    assert owner_of(stored(store(run.parent / "other", {"plain.py": text}, [made], **both))).layer == TORCH_INDUCTOR
    nowhere = owner_of(stored(store(run.parent / "bare", {"plain.py": text}, [made])))
    assert not nowhere.established and {DYNAMO, AOT} <= set(nowhere.open)


def test_a_failure_of_dynamo_is_seen_with_eager_already(run: Path) -> None:
    text = normalizes(REFUSING, "error Unsupported in exc.py:a, exc.py:unimplemented")
    text = text.replace("    from minify_backends import refusing\n\n", "").replace(
        "torch.compile(program, backend=refusing)", "torch.compile(program, backend='aot_eager', fullgraph=True)"
    )
    text = text.replace("def program(x):\n", "def program(x):\n    torch._dynamo.graph_break()\n")
    text = text.replace("where(error)}", "where(error).partition(' ')[0]}").replace(
        "'error Unsupported in exc.py:a, exc.py:unimplemented'", "'error Unsupported'"
    )
    assert "fullgraph=True" in text and "graph_break" in text
    broken = store(run.parent / "dynamo", {"plain.py": text}, [record("plain.py", text, "error Unsupported")])
    made = through_each(stored(broken))
    assert [(step.backend, step.shows) for step in made] == [("aot_eager", True), ("eager", True)]
    assert str(owner_of(stored(broken), made)) == DYNAMO


def test_another_backend_takes_the_programs_arguments_and_not_the_backends_options(run: Path) -> None:
    text = normalizes(INDUCTOR, "defect").replace("backend='inductor'", "backend='inductor', dynamic=True, mode='x'")
    made = StoredRepro(open_run(run), record("plain.py", text, "defect"))
    (run / "repros/plain.py").write_text(text)
    changed = made.through("aot_eager")
    assert "    return torch.compile(program, backend='aot_eager', dynamic=True)\n" in changed
    line = next(line for line in text.splitlines() if "torch.compile(" in line)
    assert changed == text.replace(line, "    return torch.compile(program, backend='aot_eager', dynamic=True)")


@pytest.mark.slow
def test_a_vendors_failure_shows_in_none_of_torchs_backends(run: Path, capsys: Capture) -> None:
    told = said(capsys, run, "plain.py", "--owner", "--yes")
    assert "for the backend minify_backends: with " in told
    report = said(capsys, run, "plain.py", "--owner", "--yes", "--export", "markdown")
    assert f"- {TORCH_INDUCTOR}: with backend='inductor' the script says FOUND nothing" in report


# handed over


def suite(folder: Path) -> tuple[dict[str, str], str]:
    """File → how its test ended, of all in a folder; and what pytest printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider", str(folder)],
        capture_output=True, text=True, cwd=folder, timeout=500,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(minify_backends.__file__).parent)},
    )  # fmt: skip
    found = re.findall(r"^(PASSED|FAILED) (\w+)\.py::|^(SKIPPED) \[1\] (\w+)\.py:", done.stdout, re.MULTILINE)
    return {name or other: ended or skipped for ended, name, skipped, other in found}, done.stdout


def test_the_test_fails_with_the_failure_passes_without_it_and_skips_where_it_can_not_run(
    run: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "suite"
    said(capsys, run, "numbers.py", "--export", "pytest", "--out", out / "test_shows.py")
    assert {path.name for path in out.iterdir()} == {"test_shows.py", "test_shows.safetensors"}
    text = (out / "test_shows.py").read_text()
    for name, changed in (("gone", text.replace("backend=refusing", "backend='eager'")),
                          ("cannot", text.replace("import refusing", "import gone"))):  # fmt: skip
        (out / f"test_{name}.py").write_text(changed)
    ended, told = suite(out)
    assert ended == {"test_shows": "FAILED", "test_gone": "PASSED", "test_cannot": "SKIPPED"}, told
    assert "the script could not run: ImportError" in told and f"FOUND {REFUSED}" in told


@pytest.mark.slow
def test_the_test_of_another_failure_or_of_a_rule_fails_too(run: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "suite"
    text = json.loads(said(capsys, run, "plain.py", "--export", "pytest", "--format", "json"))["text"]
    written = said(capsys, run, "plain.py", "--export", "pytest", "--out", out / "test_other.py", "--format", "json")
    assert json.loads(written)["written"] == [str(out / "test_other.py")]
    assert (out / "test_other.py").read_text() == text
    said(capsys, run, violation()[0].path, "--export", "pytest", "--out", out / "test_rule.py")
    text, rule = ((out / f"test_{name}.py").read_text() for name in ("other", "rule"))
    (out / "test_other.py").write_text(text.replace("minify_backends.py:refuse'", "minify_backends.py:elsewhere'"))
    (out / "test_aborts.py").write_text(text.replace("def main():\n", "def main():\n    os.abort()\n"))
    (out / "test_fits.py").write_text(rule.replace("[4, 9], [9, 1]", "[4, 8], [8, 1]"))
    ended, told = suite(out)
    assert ended == {"test_other": "FAILED", "test_aborts": "FAILED", "test_rule": "FAILED", "test_fits": "PASSED"}, (
        told
    )


def test_what_is_there_is_not_written_over(run: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "test_it.safetensors").write_text("mine")
    told = refused(capsys, run, "numbers.py", "--export", "pytest", "--out", tmp_path / "test_it.py")
    assert "test_it.safetensors" in told and not (tmp_path / "test_it.py").exists()
    assert cli.main(["repro", str(run), "numbers.py", "--export", "pytest"]) == 0
    assert "--out FILE writes both" in capsys.readouterr().err


def test_the_report_tells_what_is_known_and_what_is_not(run: Path, tmp_path: Path, capsys: Capture) -> None:
    report = said(capsys, run, "plain.py", "--export", "markdown")
    assert report.startswith("# torch.compile refuses a layer norm\n")
    assert "For **the backend minify_backends**: not established." in report
    assert "| torch | 9.8.7 |" in report and "| python | 3.99.1 |" in report and "| triton | not installed |" in report
    assert "| device | Chip 3000, CUDA 15.2 |" in report and "| OS | not recorded |" in report
    assert f"- failure: {REFUSED}" in report and "met before in day/old" in report
    assert f"{DYNAMO}, {AOT}, PyTorch's decompositions: not looked at" in report
    assert f"```python\n{stored(run, 'plain.py').text}```" in report
    said(capsys, run, "numbers.py", "--export", "markdown", "--out", tmp_path / "bug.md")
    assert "DATA = 'bug.safetensors'" in (tmp_path / "bug.md").read_text()
    assert (tmp_path / "bug.safetensors").read_bytes() == (run / "repros/repro.safetensors").read_bytes()
    rule = said(capsys, run, violation()[0].path, "--export", "markdown")
    assert "For **the rule alignment of the profile strict4**: the captured graph breaks it at relu" in rule
    assert "measured 9, limit 4" in rule and "the script is not verified (not run: only the first 0 were)" in rule


def test_the_report_has_what_the_backend_generates(run: Path, capsys: Capture) -> None:
    text = normalizes(REFUSING)
    for kernel, says in (("repros/plain.kernel.txt", "````"), ("repros/../../secret", "a file in repros/")):
        numbers: Any = ("", "", 1, 9, True, True, "", 3, 1.0)
        found = MinifiedRecord("", "lower", "error", "repros/plain.py", kernel, REFUSED, "g0.forward", "norm", *numbers)
        folder = store(run.parent / f"kernel {len(kernel)}", {"plain.py": text, "plain.kernel.txt": "```\nforged"},
                       [record("plain.py", text)], **{"minify/minified.json": jsonable(found)})  # fmt: skip
        code = 0 if "plain" in kernel else entry.EXIT_CONFIGURATION
        assert cli.main(["repro", str(folder), "--export", "markdown"]) == code
        assert says in "".join(capsys.readouterr())


def test_no_fence_in_a_script_ends_the_block(run: Path, capsys: Capture) -> None:
    text = normalizes(REFUSING).replace("1 operation of", "````\n# forged\n1 operation of")
    folder = store(run.parent / "fence", {"plain.py": text}, [record("plain.py", text)])
    report = said(capsys, folder, "--export", "markdown")
    assert f"`````python\n{text}`````" in report
