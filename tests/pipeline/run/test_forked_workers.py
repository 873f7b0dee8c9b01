"""Workers of a sweep are forked from a server: they find, tell and end as those that are started do."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from runner_support import HERE, Outcome, execute

from inductor_debug.pipeline.run.parent import forking
from inductor_debug.pipeline.run.parent.forking import Forked, close_fork_server, fork_server
from inductor_debug.pipeline.run.parent.watch import Watch
from inductor_debug.pipeline.run.processes import fork_server as serving

pytestmark = pytest.mark.usefixtures("stages_on_path")

RUN = (
    "import sys, logging; sys.path.insert(0, sys.argv[1]); logging.basicConfig(level='INFO', stream=sys.stdout)\n"
    "from pathlib import Path; from runner_support import execute\n"
    "execute(Path(sys.argv[2]), *sys.argv[3:], keep_rejected=True)"
)
OWN = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "MPLCONFIGDIR",
    "TMPDIR",
    "INDUCTOR_DEBUG_WORKER",
)
"""Variables that differ from run to run."""


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    close_fork_server()
    yield
    close_fork_server()


def server() -> psutil.Process:
    (found,) = forking._current
    return psutil.Process(found.process.pid)


def forked(path: Path, *stages: str, **config: Any) -> Outcome:
    """As a job of a sweep runs."""
    return execute(path, *stages, keep_rejected=True, **config)


@pytest.mark.parametrize("of", ["own_source", "installed_names"])
def test_a_server_whose_source_or_packages_have_changed_forks_no_worker(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of it would run what was there before, and its results be kept under what is there now."""
    states = iter(["first", "first", "second"])
    monkeypatch.setattr(serving, of, lambda: next(states))
    monkeypatch.setattr(serving, "_import", lambda modules: None)
    monkeypatch.setattr(os, "waitpid", lambda child, how: (child, 0))
    ours, theirs = socket.socketpair()
    content = json.dumps({"torch": False}).encode()
    forks: list[None] = []

    def ask() -> None:
        ours.sendall(len(content).to_bytes(forking.HEAD) + content)

    def forked() -> int:
        forks.append(None)
        if len(forks) == 1:
            ask()
        else:
            ours.shutdown(socket.SHUT_RDWR)
        return 1

    monkeypatch.setattr(serving, "_forked", forked)
    with ours, theirs:
        ask()
        serving.serve(theirs)
    assert len(forks) == 1


def test_a_forked_worker_finds_what_a_started_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "1")
    outcomes = [
        execute(tmp_path / "started", "tells"),
        forked(tmp_path / "first", "tells"),
        forked(tmp_path / "next", "tells"),
    ]
    started, *others = (outcome.json("tells/told.json") for outcome in outcomes)
    for told, outcome in zip(others, outcomes[1:], strict=True):
        told["open"] = [place for place in told["open"] if not place.endswith("/room")]  # that it works for a sweep
        assert {key for key in told if told[key] != started[key]} <= {"variables", "parent", "group"}
        assert set(told["variables"]) == set(started["variables"])
        differ = {key for key, value in told["variables"].items() if value != started["variables"][key]}
        assert differ <= set(OWN)
        assert str(outcome.path) in told["variables"]["TMPDIR"]
        assert told["group"] == told["parent"] != os.getpgid(0)  # its guard leads a session of its own
    assert others[0]["hash"] == others[1]["hash"]


def test_a_forked_worker_ends_as_a_started_one_does(tmp_path: Path) -> None:
    stages = ("plain", "raises", "segfaults", "killed", "exits", "after", "prints")
    options = {"exits": {"code": 7}}
    started = execute(tmp_path / "started", *stages, options=options)
    other = forked(tmp_path / "forked", *stages, options=options)
    assert (other.code, other.statuses) == (started.code, started.statuses)
    for stage in set(stages) - {"after"}:
        assert other.message(stage) == started.message(stage)
    assert "native line before the fault" in other.log and "Fatal Python error: Segmentation fault" in other.log
    assert server().children() == []


def test_a_forked_worker_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    outcome = forked(tmp_path / "run", "hangs", "after", timeout_s=3)
    assert outcome.statuses == {"hangs": "timed_out", "after": "passed"}
    child = int((outcome.path / "hangs" / "child.pid").read_text())
    assert not psutil.pid_exists(child)
    assert "Current thread" in outcome.log or "Thread 0x" in outcome.log  # its stacks


def test_a_forked_worker_has_its_limit_of_memory(tmp_path: Path) -> None:
    outcome = forked(tmp_path / "run", "allocates", "plain", memory_limit="1500MB")
    assert outcome.statuses == {"allocates": "crashed", "plain": "passed"}
    assert "ran out of memory" in outcome.message("allocates")


@pytest.mark.parametrize("whom", ["parent", "server", "guard"])
def test_nobody_outlives_one_of_them_that_is_killed(tmp_path: Path, whom: str) -> None:
    command = [sys.executable, "-u", "-c", RUN, str(HERE), str(tmp_path / "run"), "plain", "hangs_plainly", "after"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any("hanging now" in line for line in process.stdout)
    parent = psutil.Process(process.pid)
    everybody = parent.children(recursive=True)
    (fork_server_process,) = parent.children()
    (guard,) = fork_server_process.children()
    {"parent": parent, "server": fork_server_process, "guard": guard}[whom].kill()
    process.communicate(timeout=120)
    _, alive = psutil.wait_procs(everybody, timeout=60)
    for left in alive:
        left.kill()
    assert not alive
    if whom != "parent":
        outcome = Outcome(3, tmp_path / "run")
        assert outcome.statuses == {"plain": "passed", "hangs_plainly": "crashed", "after": "passed"}


def test_a_server_serves_while_variables_and_folder_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_fork_server()
    others = psutil.Process().children()  # torch's compile workers, say, which an earlier test had started
    forked(tmp_path / "one", "tells")
    first = server()
    forked(tmp_path / "two", "tells")
    assert server() == first
    monkeypatch.setenv("MINE", "other")
    assert forked(tmp_path / "three", "tells").json("tells/told.json")["variables"]["MINE"] == "other"
    second = server()
    assert second != first and not first.is_running()
    monkeypatch.chdir(tmp_path)
    assert forked(tmp_path / "four", "tells").json("tells/told.json")["folder"] == str(tmp_path)
    assert server() != second
    third = server()
    third.send_signal(signal.SIGKILL)
    third.wait()
    assert forked(tmp_path / "five", "plain").code == 0
    close_fork_server()
    assert set(psutil.Process().children()) <= set(others)


def test_torch_is_imported_once_two_workers_needed_it(tmp_path: Path) -> None:
    assert not forked(tmp_path / "one", "tells").json("tells/told.json")["torch"]
    (found,) = forking._current
    assert found.needed_torch == 0  # no stage of this run needs it
    found.needed_torch = 2
    assert forked(tmp_path / "two", "tells").json("tells/told.json")["torch"]
    assert fork_server({}) is not found


def test_a_single_run_starts_its_worker(tmp_path: Path) -> None:
    execute(tmp_path / "run", "plain")
    assert forking._current == []


@pytest.mark.parametrize(("forked", "over"), [(True, None), (False, 200)])
def test_pages_that_a_worker_shares_with_its_guard_count_once(
    forked: bool, over: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked guard holds what the server imported, as its worker does."""
    watch = Watch.__new__(Watch)
    watch.memory_limit, watch.peak, watch._seen = 150, 0, set()
    watch.process = Forked.__new__(Forked) if forked else subprocess.Popen.__new__(subprocess.Popen)
    monkeypatch.setattr(Watch, "_sum", lambda self, kind: {"rss": 200, "uss": 100}[kind])
    assert watch.over_limit() == over
