"""Verification: a script is believed for what a fresh process shows, and for nothing else."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inductor_debug.stages.constrain.config import ConstrainConfig
from inductor_debug.stages.constrain.stage import ConstrainStage
from inductor_debug.stages.repro import Script, Verification, verify

LINE = "VIOLATION alignment measured=7 limit=16"


def outcome(text: str, line: str = LINE, **options: float) -> Verification:
    (found,) = verify([Script("s", text, line)], **options)
    return found


def test_the_line_and_the_exit_code_together_verify() -> None:
    found = outcome(f"import sys\nprint('a warning')\nprint({LINE!r})\nsys.exit(0)")
    assert found.verified and found.reason == "" and found.seconds > 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"import sys; print({LINE!r}); sys.exit(1)", "does not reproduce"),
        ("import sys; print('FITS alignment measured=16 limit=16'); sys.exit(1)", "does not reproduce: FITS"),
        ("import sys; print('VIOLATION alignment measured=9 limit=16')", "something else.*measured=9"),
        ("raise ValueError('broken')", "does not reproduce.*ValueError: broken"),  # Python's own exit code is 1 too
        ("import sys; sys.exit(3)", "could not run: it printed nothing"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "signal 11"),
        ("import sys; sys.exit(7)", "exit code 7"),
        ("import inductor_debug.stages.graphs.records", "must not need this tool: inductor_debug"),
        ("import urllib.request as r; r.urlopen('http://127.0.0.1:9')", "must not use the network"),
    ],
)
def test_anything_else_is_not_verified_and_says_why(text: str, reason: str) -> None:
    found = outcome(text)
    assert not found.verified

    assert re.search(reason, found.reason), found.reason


def test_a_script_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    child = f"import time, pathlib; time.sleep(3); pathlib.Path({str(mark)!r}).touch()"
    text = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    found = outcome(text, timeout_s=1.0)
    assert not found.verified and found.reason == "timed out after 1 s"
    time.sleep(3)
    assert not mark.exists()


def test_a_script_too_large_is_not_run() -> None:
    (found,) = verify([Script("s", "raise SystemExit(1)", LINE, nbytes=1000)], max_bytes=999)
    assert found == Verification(False, "not run: its tensors take 1,000 bytes, more than 999")


def test_scripts_keep_their_order_and_their_working_directory_is_empty() -> None:
    texts = [
        f"import sys, os, time; time.sleep({wait}); print(os.listdir(), sys.flags.safe_path)"
        for wait in (0.5, 0.0, 0.2)
    ]
    found = verify([Script(str(i), text, "['repro.py'] True") for i, text in enumerate(texts)], jobs=2)
    assert [item.verified for item in found] == [True] * 3


def test_the_stage_runs_what_it_writes_before_it_calls_it_verified() -> None:
    from constrain_context import context

    result = ConstrainStage(ConstrainConfig(verified_repros=1)).run(context({"alignment": 8, "strict": True}))
    first, second = result.summary["repros"]
    assert (first.verified, first.reason, first.failure_class) == (True, "", "violation:alignment")
    assert (second.verified, second.reason) == (False, "not run: only the first 1 were")
    assert {item.path for item in (first, second)} == {name for name in result.artifacts if name.startswith("repros/")}
    assert result.message.endswith("\n2 reproductions in repros/, 1 run and seen to show it.")


def test_no_repros_where_none_are_wanted_or_nothing_is_violated() -> None:
    from constrain_context import context

    for options, accel in (({"repros": 0}, {"alignment": 8, "strict": True}), ({}, {"alignment": 2, "strict": True})):
        result = ConstrainStage(ConstrainConfig(**options)).run(context(accel))
        assert "repros" not in result.summary and not [name for name in result.artifacts if "repros" in name]


def test_writing_repros_imports_no_torch() -> None:

    code = (
        "import sys; import inductor_debug.stages.repro as a, inductor_debug.stages.rules.repros as b; "
        "import inductor_debug.stages.constrain.stage, inductor_debug.stages.backends.strict_error; "
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
