"""However a stage ends, the others run, the report is written, and the run directory tells the truth."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from runner_support import HERE, Outcome, execute
from whole_directories import assert_complete

from inductor_debug.pipeline.run.sweep import sweep_exit_code
from inductor_debug.stages.registry import declared

pytestmark = pytest.mark.usefixtures("stages_on_path")


def test_stages_of_one_worker_share_what_is_alive_and_the_parent_needs_no_torch(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "plain", "after", seed=5)
    assert (outcome.code, outcome.summary["verdict"]) == (0, "passed")
    assert outcome.message("after") == "shared=True value=15 torch=False"
    assert outcome.json("plain/numbers.json")["nan"] == "nan"
    assert outcome.summary["graphs"]["dynamo"] == 1
    assert outcome.summary["graphs"]["backward"] is None
    assert_complete(outcome)


def test_importing_the_runner_imports_neither_torch_nor_pandas() -> None:
    package = "inductor_debug.pipeline.run"
    imports = f"import sys, {package}.runner, {package}.sweep, {package}.processes.worker"
    code = f"{imports}; print([name for name in ('torch', 'pandas') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_stage_that_raises_is_crashed_and_what_needs_it_is_skipped(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "plain", "raises", "needy", "after", "report")
    assert outcome.code == 3
    assert outcome.statuses == {
        "plain": "passed", "raises": "crashed", "needy": "skipped", "after": "passed", "report": "passed"
    }  # fmt: skip
    assert outcome.message("raises") == "RuntimeError: planted failure"
    assert "raises" in outcome.message("needy")
    assert outcome.message("after").startswith("shared=True")  # the worker lives on
    assert "Traceback" in outcome.log and "second line" in outcome.log
    assert_complete(outcome)


def test_a_crash_is_told_by_what_caused_it(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "raises_wrapped", "announces")
    assert outcome.message("raises_wrapped") == (
        "KeyError: 'the cause' (within RuntimeError: backend='compiler_fn' raised)"
    )
    assert outcome.message("announces") == f"ValueError: {'x' * 300}… (within RuntimeError: 3 violations)"


def test_a_crash_over_a_dtype_tells_which_weights_were_cast(tmp_path: Path) -> None:
    assert execute(tmp_path / "run", "raises_for_a_dtype").message("raises_for_a_dtype") == (
        "RuntimeError: mat1 and mat2 must have the same dtype; dtype=float32 cast the model's bfloat16 weights"
    )


def test_a_mistake_that_only_compiling_can_tell_is_one_of_the_configuration(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = execute(tmp_path / "run", "plain", "refuses", "after")
    told = "backend.options.x: got 1; valid: 2.\nTry: backend.options.x=2"
    assert outcome.code == 2 and told in capfd.readouterr().err
    assert outcome.statuses == {"plain": "passed", "refuses": "failed", "after": "passed"}
    assert outcome.message("refuses") == f"not established: {told}"
    assert outcome.summary["verdict"] == "failed"
    assert sweep_exit_code([outcome.path]) == 2
    assert execute(tmp_path / "other", "refuses", "raises").code == 3  # a crash is worse
    assert_complete(outcome)


def test_a_stage_that_segfaults_costs_itself_alone_and_its_native_output_is_kept(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "plain", "segfaults", "after", "report", seed=2)
    assert outcome.code == 3
    assert outcome.statuses == {"plain": "passed", "segfaults": "crashed", "after": "passed", "report": "passed"}
    assert "SIGSEGV" in outcome.message("segfaults")
    assert outcome.message("after").startswith("shared=False value=6")
    assert "native line before the fault" in outcome.log
    assert "descriptor line before the fault" in outcome.log
    assert "Segmentation fault" in outcome.log
    assert_complete(outcome)


@pytest.mark.parametrize(
    ("stage", "told"), [("killed", "SIGKILL"), ("exits", "exit code 0")], ids=["killed", "exits_with_0"]
)
def test_a_worker_that_vanishes_is_never_a_pass(tmp_path: Path, stage: str, told: str) -> None:
    outcome = execute(tmp_path / "run", stage, "after", options={"exits": {"code": 0}})
    assert (outcome.code, outcome.statuses) == (3, {stage: "crashed", "after": "passed"})
    assert told in outcome.message(stage)


def test_a_stage_that_hangs_is_timed_out_with_all_that_it_started(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "hangs", "after", "report", timeout_s=2)
    assert outcome.code == 3
    assert outcome.statuses == {"hangs": "timed_out", "after": "passed", "report": "passed"}
    assert outcome.message("hangs") == (
        "timed out: still running after runner.timeout_s=2; the stacks are in run.log. To wait longer, add to "
        "the command: runner.timeout_s=4"
    )
    assert "in run" in outcome.log and "runner_stages.py" in outcome.log  # the stack at which it hung
    child = int((outcome.path / "hangs" / "child.pid").read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert_complete(outcome)


@pytest.mark.parametrize(("stage", "limit"), [("allocates", "1GiB"), ("allocates_in_children", "300MiB")])
def test_a_stage_beyond_the_memory_limit_says_so(tmp_path: Path, stage: str, limit: str) -> None:
    outcome = execute(tmp_path / "run", stage, "after", "report", memory_limit=limit)
    assert (outcome.code, outcome.statuses) == (3, {stage: "crashed", "after": "passed", "report": "passed"})
    assert outcome.message(stage).startswith("ran out of memory")
    assert "runner.memory_limit is" in outcome.message(stage)
    assert ". To need less, add a smaller model.batch_size to the command" in outcome.message(stage)


def test_a_strict_violation_skips_what_follows_and_fails_the_run(tmp_path: Path) -> None:
    stopped = ["lower", "kerneldiff", "benchmark", "bisect", "profile"]
    outcome = execute(tmp_path / "run", "plain", "constrain", *stopped, "report")
    assert (outcome.code, outcome.summary["verdict"]) == (1, "failed")
    assert outcome.statuses == {"plain": "passed", "constrain": "failed", **dict.fromkeys(stopped, "skipped"),
                                "report": "passed"}  # fmt: skip
    assert outcome.message("lower") == "the model does not fit the profile, which is strict"
    assert "2 violations" in outcome.message("constrain")
    assert outcome.summary["violations"]["by_rule"] == {"alignment": 2}
    assert outcome.summary["numerics"]["verdict"] is None


def test_a_comparison_that_died_is_not_established(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "kerneldiff", "report")
    assert outcome.code == 3
    assert outcome.summary["numerics"]["verdict"] == "not_established"


def test_the_report_runs_last_and_sees_the_other_stages(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "report", "raises", "plain")
    assert list(outcome.statuses) == ["raises", "plain", "report"]
    seen = outcome.json("report/seen.json")
    assert [stage["status"] for stage in seen["summary"]["stages"]] == ["crashed", "passed"]
    assert seen["summary"]["verdict"] == "crashed"
    assert seen["versions"]["torch"]


def test_without_isolation_the_stages_run_in_this_process(tmp_path: Path) -> None:
    before = dict(os.environ)
    stages = dict(declared())
    outcome = execute(tmp_path / "run", "plain", "raises", "after", "report", isolation="none")
    assert (outcome.code, outcome.json("plain/numbers.json")["pid"]) == (3, os.getpid())
    assert outcome.statuses == {"plain": "passed", "raises": "crashed", "after": "passed", "report": "passed"}
    assert dict(os.environ) == before
    assert_complete(outcome)
    assert stages == declared()  # a run in this process adds its own stages to none of the next


def test_an_interruption_kills_the_worker_and_leaves_a_truthful_summary(tmp_path: Path) -> None:
    code = (
        "import sys, logging; sys.path.insert(0, sys.argv[1]); logging.basicConfig(level='INFO', stream=sys.stdout)\n"
        "from pathlib import Path; from runner_support import execute\n"
        "execute(Path(sys.argv[2]), 'plain', 'hangs_plainly', 'after')"
    )
    command = [sys.executable, "-u", "-c", code, str(HERE), str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert any("hanging now" in line for line in process.stdout)
    worker = psutil.Process(process.pid).children()[0]
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    assert process.wait() != 0
    assert not worker.is_running()
    outcome = Outcome(3, tmp_path / "run")
    assert outcome.statuses == {"plain": "passed", "hangs_plainly": "crashed", "after": "skipped"}
    assert "interrupted" in outcome.message("hangs_plainly")
    assert outcome.summary["verdict"] == "crashed"
    assert_complete(outcome)
