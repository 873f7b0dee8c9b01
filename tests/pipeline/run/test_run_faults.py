"""Faults around a run: whatever a model, a disk or a signal does, the directory tells the truth and nothing is left."""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from runner_support import HERE, Outcome, execute
from whole_directories import assert_complete

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.directory.folders import made
from inductor_debug.pipeline.run.processes import guard
from inductor_debug.pipeline.run.processes.guard import BoundedLog

pytestmark = pytest.mark.usefixtures("stages_on_path")

RUN = (
    "import sys, logging; sys.path.insert(0, sys.argv[1]); logging.basicConfig(level='INFO', stream=sys.stdout)\n"
    "from pathlib import Path; from runner_support import execute\n"
    "execute(Path(sys.argv[2]), *sys.argv[3:])"
)

HEARING = (
    "import signal\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGINT, signal.default_int_handler)\n"
)
"""Undoes what ``nohup``, or a shell's background, made the tests ignore."""


def start(path: Path, *stages: str) -> "subprocess.Popen[str]":
    """A process of its own that runs the named stages in ``path``, and hears each signal."""
    command = [sys.executable, "-u", "-c", HEARING + RUN, str(HERE), str(path), *stages]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process: "subprocess.Popen[str]", text: str) -> None:
    """Wait until it prints a text."""
    assert process.stdout is not None
    assert any(text in line for line in process.stdout)


def marked(mark: str) -> list[psutil.Process]:
    """Living processes that inherited a variable ``TRIAL`` of this value."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TRIAL") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_nothing_outlives_a_parent_that_is_killed_before_its_worker_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has its plan, and its interpreter is still starting."""
    killing = (
        "import os, signal, inductor_debug.pipeline.run.parent.session as session; send = session.send\n"
        "session.send = lambda *words: (send(*words), os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    mark = uuid.uuid4().hex
    monkeypatch.setenv("TRIAL", mark)
    command = [sys.executable, "-c", killing + RUN, str(HERE), str(tmp_path / "run"), "hangs_in_its_check"]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    _, alive = psutil.wait_procs(marked(mark), timeout=20)
    for process in alive:
        process.kill()
    assert not alive


def test_nothing_outlives_a_parent_that_is_killed_while_a_stage_runs(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "leaves_a_daemon", "hangs_plainly")
    told(process, "hanging now")
    daemon = psutil.Process(int(Outcome(0, tmp_path / "run").json(".stages/leaves_a_daemon.json")["message"]))
    children = psutil.Process(process.pid).children(recursive=True)
    assert daemon in children
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def test_a_process_that_a_stage_left_behind_ends_with_the_worker(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "leaves_a_daemon")
    assert outcome.code == 0
    assert not psutil.pid_exists(int(outcome.message("leaves_a_daemon")))


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_a_guard_that_is_killed_costs_one_stage_and_leaves_nobody(tmp_path: Path, name: str) -> None:
    process = start(tmp_path / "run", "plain", "hangs_plainly", "after")
    told(process, "hanging now")
    children = psutil.Process(process.pid).children(recursive=True)
    children[0].send_signal(getattr(signal, name))
    assert process.stdout is not None
    process.stdout.read()
    assert process.wait() == 0
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
    outcome = Outcome(3, tmp_path / "run")
    assert outcome.statuses == {"plain": "passed", "hangs_plainly": "crashed", "after": "passed"}
    assert_complete(outcome)


@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM", "SIGINT"])
def test_a_signal_ends_the_run_with_a_summary(tmp_path: Path, name: str) -> None:
    process = start(tmp_path / "run", "plain", "hangs_plainly", "after")
    told(process, "hanging now")
    process.send_signal(getattr(signal, name))
    process.communicate()
    outcome = Outcome(process.returncode, tmp_path / "run")
    assert outcome.statuses == {"plain": "passed", "hangs_plainly": "crashed", "after": "skipped"}
    assert "interrupted" in outcome.message("hangs_plainly")
    assert_complete(outcome)


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    code = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{RUN}"
    command = [sys.executable, "-u", "-c", code, str(HERE), str(tmp_path / "run"), "plain", "hangs_plainly"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    told(process, "hanging now")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)  # which is not ignored: what is told is this one
    process.communicate()
    assert "SIGHUP" not in Outcome(0, tmp_path / "run").log
    assert Outcome(0, tmp_path / "run").statuses == {"plain": "passed", "hangs_plainly": "crashed"}


def test_the_log_keeps_its_start_and_its_end(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "prints", "after", options={"prints": {"lines": 400_000}}, log_limit="1MiB")
    assert outcome.code == 0
    assert outcome.log.count("first line of the model") == outcome.log.count("last line of the model") == 1
    assert f"{1:020}\n{2:020}\n" in outcome.log and f"\n{400_000:020}\n" in outcome.log
    assert "bytes are left out here: runner.log_limit is 1,048,576 bytes" in outcome.log
    assert (outcome.path / "run.log").stat().st_size < 1.1 * 2**20
    assert_complete(outcome)


def test_all_is_logged_below_the_limit_and_without_one(tmp_path: Path) -> None:
    for name, limit in (("a", "64MiB"), ("b", None)):
        log = execute(tmp_path / name, "prints", options={"prints": {"lines": 50_000}}, log_limit=limit).log
        printed = re.sub(r"\[\d{4}-[^\n]*\n", "", log)  # without our own lines, which may come within one of these
        assert printed.count("\n000000") == 50_000 and "left out" not in log


@pytest.mark.parametrize("sizes", [[10] * 3, [10] * 300, [70_000] * 40, [1] * 2000, [3_000_000]])
def test_a_bounded_log_counts_what_it_drops(tmp_path: Path, sizes: list[int]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before")
    content = b"".join(bytes([65 + index % 26]) * size for index, size in enumerate(sizes))
    with path.open("ab", buffering=0) as file:
        log = BoundedLog(file.fileno(), 1024)
        start = 0
        for size in sizes:
            log.add(content[start : start + size])
            start += size
        log.close()
    written = path.read_bytes().removeprefix(b"before")
    head, note, tail = written.partition(b"\n[\xe2\x80\xa6 ")
    if len(content) <= 1024 - len(b"before"):
        assert (head, note, log.dropped) == (content, b"", 0)
        return
    tail = tail.partition(b"]\n")[2]
    assert content.startswith(head) and content.endswith(tail) and head and tail
    assert len(head) + len(tail) + log.dropped == len(content)
    assert len(head) + len(tail) <= 1024


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        log = BoundedLog(full.fileno(), None)
        log.add(b"x" * 100)
        log.close()
    assert log.dropped == 100


def test_foreign_bytes_on_the_events_pipe_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = execute(tmp_path / "run", "plain", "writes_everywhere", "after")
    assert outcome.statuses == dict.fromkeys(("plain", "writes_everywhere", "after"), "passed")
    assert outcome.code == 0 and outcome.message("after").startswith("shared=True")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "something else than the worker wrote to the pipe of its events, during writes_everywhere; it is ignored"
    ]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_model_that_closes_every_pipe_fails_nothing(tmp_path: Path, at_once: bool) -> None:
    options = {"closes_everything": {"at_once": at_once}}
    outcome = execute(tmp_path / "run", "plain", "closes_everything", "after", options=options)
    assert outcome.statuses == dict.fromkeys(("plain", "closes_everything", "after"), "passed")
    assert outcome.code == 0
    assert "Traceback" not in outcome.log and "could not be told" in outcome.log


def test_a_recursion_limit_that_a_model_sets_is_not_lowered(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "lowers_recursion_limit", "after")
    assert outcome.statuses == {"lowers_recursion_limit": "passed", "after": "passed"}
    assert "the model asks for a recursion limit of 30; it stays" in outcome.log


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk]).returncode:
        pytest.skip("only root can mount a small file system")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_leaves_a_summary_of_what_was_done(small_disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = execute(small_disk / "run", "plain", "fills_the_disk", "after", "report")
    assert outcome.code == 3
    assert outcome.statuses == {"plain": "passed", "fills_the_disk": "crashed", "after": "skipped", "report": "skipped"}
    assert "its result could not be stored: the disk is full" in outcome.message("fills_the_disk")
    assert "not run: the disk is full" in outcome.message("after")
    assert outcome.json("plain/numbers.json")["value"] == 0
    assert_complete(outcome)
    assert "Traceback" not in capfd.readouterr().err and not (outcome.path / ".reserve").exists()


def test_a_disk_that_is_full_before_the_run_is_one_message(small_disk: Path) -> None:
    with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(UserError, match=r"hydra.run.dir: .*No space left on device.*\nTry: hydra.run.dir=FOLDER"):
        execute(small_disk / "run", "plain")
    assert not any((small_disk / "run").iterdir())


@pytest.mark.parametrize("kind", ["cache", "compiler_cache"])
def test_a_cache_that_cannot_be_written_is_one_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "file").write_text("")
    kinds = {"cache": False} | {kind: True}
    outcome = execute(tmp_path / "run", "plain", **kinds, cache_dir=str(tmp_path / "file" / "cache"))
    assert outcome.code == 2 and not outcome.path.exists()
    assert "runner.cache_dir: " in capfd.readouterr().err


@pytest.mark.parametrize("place", ["file", "file/inside", "/proc/self/inside"])
def test_a_folder_that_cannot_be_written_is_one_message(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--out: .* can't be written.*\nTry: --out FOLDER"):
        made(tmp_path / place, "--out")


def test_the_guard_imports_the_standard_library_alone() -> None:
    code = f"import sys, runpy; runpy.run_path({guard.__file__!r}); print([n for n in sys.modules if '.' in n])"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert "site-packages" not in done.stdout
