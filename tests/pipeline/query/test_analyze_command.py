"""``inductor-debug analyze`` on a stored run written here: two lines of a model, four launches."""

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stored_analysis import FILE, FILES, SCALE, SOFTMAX, launch, table, write

from inductor_debug.pipeline import cli
from inductor_debug.pipeline import query as analysis
from inductor_debug.pipeline.command_line.app import Format
from inductor_debug.pipeline.command_line.printing import print_analysis
from inductor_debug.pipeline.run.commands import entry
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.lower.questions.kernels import COLUMNS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run's folder, the newest below the working directory's outputs."""
    monkeypatch.chdir(tmp_path)
    older, folder = (tmp_path / "outputs/2026-01-01" / name for name in ("1-old", "2-new"))
    for each in (older, folder):
        stages = [{"name": "lower", "status": "passed", "seconds": 1.0, "message": "lowered"}]
        about = {"model": "nets", "accel": "none", "backend": "inductor", "device": "cpu"}
        write(each, {"summary.json": {"run": about, "verdict": "passed", "stages": stages},
                     ".hydra/config.yaml": "dtype: float32\n", **FILES})  # fmt: skip
    return folder.relative_to(tmp_path)


def asked(*words: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The answer as JSON."""
    assert cli.main(["analyze", *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What is said where there is no answer: one message, and nothing printed that could be taken for one."""
    assert cli.main(["analyze", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "Traceback" not in printed.err
    return printed.err


@pytest.mark.parametrize("line", ["nets.py:14", "my_package/nets.py:14", "x.softmax"])
def test_a_line_leads_to_its_launches_and_their_place_in_the_generated_code(
    line: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked("--type", "kernels", "--line", line, capsys=capsys)
    assert found["run"] == str(run)
    kernels = found["tables"]["kernels"]
    assert [(row["kernel"], row["called_at"].rpartition(":")[2]) for row in kernels] == [
        ("cpp_fused_softmax_1:3", "4"), ("cpp_fused_softmax_1:30", "7")]  # fmt: skip
    assert {row["source"] for row in kernels} == {f"{FILE}:14"}
    assert kernels[0]["file"] == "lower/g0.forward/kernels/cpp_fused_softmax_1.cpp"
    assert list(kernels[0]) == list(COLUMNS)


def test_a_kernel_leads_to_its_lines_and_buffers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("--type", "kernels", "--kernel", "softmax_1:3", capsys=capsys)["tables"]
    assert [row["kernel"] for row in found["kernels"]] == ["cpp_fused_softmax_1:3"]
    assert [(row["source"], row["code"]) for row in found["lines"]] == [
        (f"{FILE}:14", SOFTMAX["code"]), (f"{FILE}:12", SCALE["code"])]  # fmt: skip
    assert [(row["access"], row["shape"]) for row in found["buffers"]] == [("reads", "4×s0")]
    (row,) = asked("--type", "kernels", "--node", "exp_2", capsys=capsys)["tables"]["kernels"]
    assert row["kernel"] == "cpp_fused_softmax_1:30"


def test_two_lines_have_the_decisions_between_them(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("--type", "fusion", "--line", "nets.py:12", "--line", "nets.py:14", capsys=capsys)
    (row,) = found["tables"]["decisions"]
    assert (row["fused"], row["reason"], row["times"]) == (False, "no shared data", 2)
    one, library = found["told"]
    assert one == "in one kernel: cpp_fused_softmax_1:3"
    assert library == "library calls, which nothing is fused into: extern_kernels.mm (1 launch)"
    found = asked("--type", "fusion", "--node", "exp", "--node", "sum_1", capsys=capsys)
    assert [row["fused"] for row in found["tables"]["decisions"]] == [False, True]
    together = "in one kernel: cpp_fused_softmax_1:3; a pair below that was refused came together through others"
    assert together in found["told"]
    everything = asked("--type", "fusion", capsys=capsys)["tables"]
    assert everything["graphs"][0] | {"fused": 1, "refused": 2} == everything["graphs"][0]
    assert len(everything["decisions"]) == 3


def test_what_one_kernel_holds_is_established_without_a_decision(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("--type", "fusion", "--node", "exp", "--node", "mul_1", capsys=capsys)
    assert found["tables"]["decisions"] == [] and found["told"] == ["in one kernel: cpp_fused_softmax_1:3"]


def test_a_pair_of_which_torch_says_nothing_is_not_established(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked("--type", "fusion", "--node", "mul", "--node", "sum_1", capsys=capsys)
    assert found["tables"]["decisions"] == [] and found["told"][-1].startswith("not established: torch recorded no")


def test_a_library_call_on_the_way_from_one_to_the_other_is_the_reason(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """mul → mm → exp: no kernel can run before and behind the library's call."""
    path = run / "lower/g0.forward/nodes.json"
    inputs = {"mul": [], "mm": ["mul"], "exp": ["mm"], "mul_1": ["mul"], "sum_1": ["exp"]}
    sources = {node["node"]: node["source"] for node in json.loads(path.read_text())["nodes"]}
    nodes = [{"node": name, "inputs": read, "source": sources.get(name, f"{FILE}:13")} for name, read in inputs.items()]
    path.write_text(json.dumps({"nodes": nodes}))
    found = asked("--type", "fusion", "--node", "mul", "--node", "sum_1", capsys=capsys)
    (launch,) = [
        row["kernel"] for row in asked("--type", "kernels", "--node", "mm", capsys=capsys)["tables"]["kernels"]
    ]
    assert found["told"] == [f"library calls from one to the other, over which nothing is fused: {launch}"]
    told = asked("--type", "fusion", "--node", "mul", "--node", "mm", capsys=capsys)["told"]
    assert told[-1].endswith(f"over which nothing is fused: {launch}")  # it is one of the two
    assert asked("--type", "fusion", "--node", "mul", "--node", "mul_1", capsys=capsys)["told"][-1].startswith(
        "not est"
    )
    rows = asked("--type", "fusion", capsys=capsys)["tables"]["decisions"]
    assert {(row["first"], row["second"]): row["between"] for row in rows}["op0", "op2"] == launch
    assert [row["between"] for row in rows if row["first"] == "op2"] == [None, None]


def test_what_is_known_to_part_two_operations_is_the_reason(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A library's call, which one of them is; and the border of a graph."""
    told = asked("--type", "fusion", "--node", "mm", "--node", "exp_2", capsys=capsys)["told"]
    assert told == ["library calls, which nothing is fused into: extern_kernels.mm (1 launch)"]
    for name in ("output_code.py", "provenance.json", "nodes.json", "fusions.csv"):
        copy = run / "lower/g1.forward" / name
        copy.parent.mkdir(exist_ok=True)
        text = (run / "lower/g0.forward" / name).read_text()
        copy.write_text(text.replace("exp_2", "tanh").replace("nets.py:14", "nets.py:20"))
    told = asked("--type", "fusion", "--node", "exp_2", "--node", "tanh", capsys=capsys)["told"]
    assert told == [
        "they are of different graphs, g0.forward and g1.forward: nothing is fused over the border of a graph"
    ]


def test_the_candidates_of_an_operation_are_held_against_the_best(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "max_autotune was off" in refused("--type", "autotuning", capsys=capsys)
    rows = [["mm", "f32[4]", "triton_mm_7", 0.5, True], ["mm", "f32[4]", "mm", 0.75, False],
            ["mm", "f32[4]", "triton_mm_2", "", False], ["mm", "f32[8]", "mm", 2.0, True],
            ["mm", "f32[8]", "mm", 2.0, True]]  # fmt: skip
    write(run, {"lower/g0.forward/autotuning.csv": table([*files.AUTOTUNING.checks()], *rows)})
    found = asked("--type", "autotuning", capsys=capsys)
    assert [row["times_the_best"] for row in found["tables"]["candidates"]] == [1.0, 1.5, None, 1.0]
    assert [row["operations"] for row in found["tables"]["candidates"]] == [1, 1, 1, 2]
    assert found["told"] == ["3 operations timed, 5 candidates; fastest: mm 2, triton_mm 1"]


def test_the_first_nan_is_of_memory_that_was_written(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["graph", "call", "launch", "kernel", "handle", "when", "buffer", "written", "holds", "writer", "state",
               "born"]  # fmt: skip
    scale, softmax = "cpp_fused_mul_0", "cpp_fused_softmax_1"
    rows = [
        ["g0.forward", 0, 0, scale, 1, "before", "buf0", False, "", "", "nan", ""],
        ["g0.forward", 0, 0, scale, 1, "after", "buf0", True, "buf0", f"{scale}:1", "finite", ""],
        ["g0.forward", 0, 1, softmax, 30, "before", "buf3", True, "buf0", f"{scale}:1", "nan", f"{scale}:1"],
        ["g0.forward", 0, 1, softmax, 30, "after", "buf3", True, "buf3", f"{softmax}:30", "nan", f"{softmax}:30"],
    ]
    write(run, {"lower/values.csv": table(columns, *rows)})
    found = asked("--type", "values", capsys=capsys)
    assert found["told"] == [
        f"the first NaN: g0.forward, before {softmax}, in buf3, whose memory holds buf0, born in {scale}:1",
        f"  from {FILE}:12: x = self.scale(x)",
        "no infinity in what was printed",
    ]
    write(run, {"lower/values.csv": table(columns, rows[0], rows[1], rows[3])})
    assert asked("--type", "values", capsys=capsys)["told"] == [
        f"the first NaN: g0.forward, after {softmax}, in buf3",
        f"  from {FILE}:14: return x.softmax(-1)",  # the second launch of that kernel
        "no infinity in what was printed",
    ]
    for name in ("mul_0", "cpp_fused_mul_0:1"):
        found = asked("--type", "values", "--kernel", name, capsys=capsys)
        assert len(found["tables"]["values"]) == 2
        assert found["told"] == ["no NaN in what was printed", "no infinity in what was printed"]


def test_a_nan_whose_birth_place_was_filtered_out_is_nobodys_and_the_command_that_tells_it_is_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ["graph", "call", "launch", "kernel", "handle", "when", "buffer", "written", "holds", "writer", "state",
               "born"]  # fmt: skip
    scale, softmax = "cpp_fused_mul_0", "cpp_fused_softmax_1"
    born = f"{scale}:1 or {softmax}:30"
    row = ["g0.forward", 0, 0, softmax, 30, "before", "buf3", True, "buf0", f"{scale}:1", "nan", born]
    printer = {"printer": {"level": 2, "kernels": [softmax]}}
    write(run, {"lower/values.csv": table(columns, row), "lower/summary.json": FILES["lower/summary.json"] | printer})
    told = asked("--type", "values", capsys=capsys)["told"]
    assert told == [
        f"the first NaN: g0.forward, before {softmax}, in buf3, whose memory holds buf0, written by {scale}:1; "
        f"where it was born is not known: in {born}",
        f"  perhaps from {FILE}:12: x = self.scale(x)",
        f"  perhaps from {FILE}:14: return x.softmax(-1)",
        f"  to learn where it was born, type inductor-debug rerun {run} 'backend.options.kernels=[{softmax},{scale}]'",
        "no infinity in what was printed",
    ]
    command = shlex.split(told[3].partition("type ")[2])
    assert entry.main(["--cfg", "job", "backend=aot_inductor", "backend.options.print_values=2", *command[3:]]) == 0


def test_values_that_nothing_can_be_said_of_are_counted(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["graph", "call", "launch", "kernel", "when", "buffer", "written", "state"]
    rows = [["g0.forward", 0, 0, "cpp_fused_mul_0", "after", name, True, state]
            for name, state in (("buf0", "finite"), ("buf1", ""))]  # fmt: skip
    write(run, {"lower/values.csv": table(columns, *rows)})
    told = asked("--type", "values", capsys=capsys)["told"]
    assert told[-1].startswith("not established: 1 value in which nothing could be looked for")
    assert "valid: g0.forward" in refused("--type", "values", "--graph", "g9.forward", capsys=capsys)
    assert "Try: --kernel cpp_fused_mul_0" in refused("--type", "values", "--kernel", "cpp_fused_mule", capsys=capsys)


@pytest.mark.parametrize("name", ["guards", "constraints", "numerics", "autotuning", "values", "bisect", "profile"])
def test_what_a_run_does_not_hold_is_told_with_a_command_that_can_be_typed(
    name: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused("--type", name, capsys=capsys)
    assert message.startswith(f"{run}: holds no ") and len(message.splitlines()) == 2
    command = shlex.split(message.partition("Try: ")[2])
    assert command[:3] == ["inductor-debug", "rerun", str(run)]
    assert entry.main(["--cfg", "job", *command[3:]]) == 0
    capsys.readouterr()
    (row,) = [row for row in asked(capsys=capsys)["tables"]["types"] if row["type"] == name]
    assert not row["held"] and shlex.split(row["otherwise"]) == command


def test_a_part_of_a_run_is_made_whole_where_the_run_was_made(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An export has no configuration: here it can't be run again."""
    (run / ".hydra/config.yaml").unlink()
    again = f"Try: where the run was made: inductor-debug rerun {run} +stages=profile"
    assert refused("--type", "profile", capsys=capsys).splitlines()[1] == again
    for file in (run / "lower/g0.forward").iterdir():
        if file.is_file():
            file.unlink()
    told = refused("--type", "kernels", capsys=capsys)
    assert "the stage lower passed, but this is a part of the run's folder" in told
    assert told.splitlines()[1] == "Try: the same question, where the run was made"


def test_a_run_without_lowering_names_the_stage_and_why(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "lower")
    summary = json.loads((run / "summary.json").read_text())
    lower = {"name": "lower", "status": "skipped", "seconds": 0, "message": "nothing is told"}
    summary["stages"] = [lower]
    write(run, {"summary.json": summary})
    for name in ("kernels", "fusion", "autotuning"):
        message = refused("--type", name, capsys=capsys)
        assert "the stage lower was skipped: nothing is told" in message and "backend=inductor" in message
    summary["stages"] = [{"name": "constrain", "status": "failed", "seconds": 0, "message": "2 violations"}, lower]
    write(run, {"summary.json": summary})
    assert "backend=inductor" not in refused("--type", "kernels", capsys=capsys)
    assert not any(row["held"] for row in asked(capsys=capsys)["tables"]["types"])


def test_graphs_without_an_operation_have_no_kernels(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(run, {"lower/g0.forward/provenance.json": {"kernels": []}})
    assert "no operation that needs a kernel" in refused("--type", "kernels", capsys=capsys)


def test_a_profile_is_told_the_longest_first(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = [*files.PROFILE_TABLES["lines"].checks()]
    rows = [[name, "", "", time, "", "", "", 1, ""] for name, time in (("short", 9.5), ("", ""), ("long", 20))]
    write(run, {"profile/lines.csv": table(columns, *rows)})
    found = asked("--type", "profile", capsys=capsys)
    assert [row["source"] for row in found["tables"]["lines"]] == ["long", "short", None]


def test_the_summary_says_what_can_be_asked(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys=capsys)
    held = {row["type"]: row["held"] for row in found["tables"]["types"]}
    assert {name for name, holds in held.items() if holds} == {"kernels", "fusion"}
    assert held.keys() | {"summary"} == analysis.questions().keys()
    assert found["told"][0].endswith("passed")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--type", "kernel"], "valid: kernels, "),
        (["--type", "guards", "--line", "nets.py"], "--line, which it does not take"),
        (["--type", "kernels", "--line", "nets.py:13"], "nets.py:12 (x = self.scale(x))"),
        (["--type", "kernels", "--kernel", "cpp_fused_softmx_1"], "Try: --kernel cpp_fused_softmax_1"),
        (["--type", "kernels", "--node", "exp_3"], "Try: --node exp"),
        (["--type", "kernels", "--node", "mul", "--node", "exp"], "no one kernel has 'mul' and 'exp'"),
        (["--type", "fusion", "--line", "nets.py:12", "--line", "nets.py:99"], "--line: got 'nets.py:99'"),
        (["--type", "fusion", "--node", "mul", "--node", "exq"], "Try: --node exp"),
        (["--type", "fusion", "--node", "exp_7"], "Try: --node exp_2"),
        (["--type", "kernels", "--graph", "g1.forward"], "valid: g0.forward"),
        (["nowhere", "--type", "kernels"], "Try: inductor-debug list"),
    ],
)
def test_a_wrong_question_is_one_message(
    words: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(*words, capsys=capsys)
    assert told in message and "Try: " in message and len(message.splitlines()) == 2


def test_without_a_run_the_message_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no run below 'outputs' here" in refused(capsys=capsys)


def test_a_table_is_cut_to_what_is_asked_for_and_torch_is_not_imported(run: Path) -> None:
    program = (
        "import sys; from inductor_debug.pipeline.cli import main\n"
        "main(['analyze', '--type', 'fusion', '--rows', '1'])\n"
        "print([name for name in ('torch', 'pandas', 'hydra') if name in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert "decisions (3, 1 shown (--rows 0 for all)):" in done.stdout


def test_what_differs_between_two_runs_is_told_and_nothing_else(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    older = run.parent / "1-old"
    write(older, {".hydra/config.yaml": "dtype: float32\nbackend: {inductor: {pattern_matcher: true}}\n"})
    provenance = {
        "kernels": [*FILES["lower/g0.forward/provenance.json"]["kernels"], launch("cpp_fused_add_2", 4, "add")]
    }
    summary = json.loads((run / "summary.json").read_text()) | {"numerics": {"verdict": "defect", "failed": 1}}
    write(run, {
        ".hydra/config.yaml": "dtype: float32\nbackend: {inductor: {pattern_matcher: false}}\n",
        "summary.json": summary,
        "lower/g0.forward/provenance.json": provenance,
        "kerneldiff/outputs.csv": table(["kind", "path", "verdict"], ["output", "y", "defect"]),
    })  # fmt: skip
    write(older, {"kerneldiff/outputs.csv": table(["kind", "path", "verdict"], ["output", "y", "exact"])})
    kernels = "lower/g0.forward/kernels"
    code = {"cpp_fused_mul_0": "int mul;\n", "cpp_fused_softmax_1": "int softmax;\n", "cpp_fused_add_2": "int add;\n"}
    for folder, header, softmax in ((older, "/tmp/a.h", "int exp;\n"), (run, "/tmp/b.h", "int softmax;\n")):
        for name, text in (code | {"cpp_fused_softmax_1": softmax}).items():
            write(folder, {f"{kernels}/{name}.cpp": f'#include "{header}"\n{text}'})
    texts = [*code.values(), "int exp;\n"]
    digests = {text: f"sha256:{hashlib.sha256(text.strip().encode()).hexdigest()[:8]}" for text in texts}
    assert cli.main(["compare", str(older), str(run), "--format", "json"]) == 1  # the tensor is wrong now
    found = json.loads(capsys.readouterr().out)["tables"]
    assert found["settings"] == [{"settings": "backend.inductor.pattern_matcher", "1": True, "2": False}]
    assert {row["results"]: (row["1"], row["2"]) for row in found["results"]} == {
        "numerics.verdict": (None, "defect"), "numerics.failed": (None, 1)}  # fmt: skip
    assert {row["kernels"]: (row["1"], row["2"]) for row in found["kernels"]} == {
        "g0.forward cpp_fused_add_2": (None, 1), "g0.forward cpp_fused_add_2: code": (None, digests["int add;\n"]),
        "g0.forward cpp_fused_softmax_1: code": (digests["int exp;\n"], digests["int softmax;\n"])}  # fmt: skip
    assert found["outputs"] == [{"outputs": "output y", "1": "exact", "2": "defect"}]
    assert cli.main(["compare", str(run.parent)]) == 0  # a folder of runs, as a sweep's is
    assert "settings (1):" in capsys.readouterr().out


def test_one_run_can_not_be_compared(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", str(run)]) == 2
    assert "got 1 run; valid: two runs or more" in capsys.readouterr().err


def test_a_message_of_several_lines_is_printed_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_analysis(analysis.Analysis(["The numbers are right.\nwithin_floor: \x1b[2J1"], []), {}, None, Format.TABLE)
    assert capsys.readouterr().out.splitlines()[:2] == ["The numbers are right.", "within_floor: \\u001b[2J1"]
