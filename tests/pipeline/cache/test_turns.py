"""Who waits for whom: jobs that would make the same result, and those that measure times."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from inductor_debug.pipeline.cache.turns import LOCKS, Machine, Turns, machine_folder

PATIENCE_S = 60.0


class Waiter:
    """Enters something in a thread, and tells whether it had to wait."""

    def __init__(self, entering: Callable[[Callable[[bool], None]], AbstractContextManager[None]]) -> None:
        self.waits, self.entered, self.leave = threading.Event(), threading.Event(), threading.Event()
        self.told: list[bool] = []
        self.thread = threading.Thread(target=self._run, args=(entering,), daemon=True)
        self.thread.start()

    def _run(self, entering: Callable[[Callable[[bool], None]], AbstractContextManager[None]]) -> None:
        with entering(self._tell):
            self.entered.set()
            self.leave.wait(PATIENCE_S)

    def _tell(self, waits: bool) -> None:
        self.told.append(waits)
        (self.waits if waits else threading.Event()).set()

    def end(self) -> None:
        self.leave.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def turn(root: Path, stage: str, key: str, waiting: Callable[[bool], None]):  # type: ignore[no-untyped-def]
    turns = Turns(root)
    turns.take(stage, key, waiting)
    yield
    turns.release(stage)


def test_of_two_that_make_the_same_one_waits(tmp_path: Path) -> None:
    first = Waiter(lambda tell: turn(tmp_path, "capture", "k", tell))
    assert first.entered.wait(PATIENCE_S) and first.told == []
    other = Waiter(lambda tell: turn(tmp_path, "capture", "another", tell))
    assert other.entered.wait(PATIENCE_S) and other.told == []
    second = Waiter(lambda tell: turn(tmp_path, "capture", "k", tell))
    assert second.waits.wait(PATIENCE_S) and not second.entered.is_set()
    first.end()
    assert second.entered.wait(PATIENCE_S) and second.told == [True, False]
    second.end()
    other.end()
    assert list((tmp_path / "capture").iterdir()) == []


def test_the_turn_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from inductor_debug.pipeline.cache.turns import Turns\n"
        "Turns(Path(sys.argv[1])).take('capture', 'k', print); print('taken', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "taken\n"
        waiter = Waiter(lambda tell: turn(tmp_path, "capture", "k", tell))
        assert waiter.waits.wait(PATIENCE_S)
        process.kill()
    assert waiter.entered.wait(PATIENCE_S)
    waiter.end()


def test_who_measures_is_alone_and_is_not_kept_waiting_by_who_comes_later(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    working, beside = Waiter(machine.together), Waiter(machine.together)
    assert working.entered.wait(PATIENCE_S) and beside.entered.wait(PATIENCE_S)
    assert working.told == beside.told == []
    measuring = Waiter(machine.alone)
    assert measuring.waits.wait(PATIENCE_S)
    later = Waiter(machine.together)
    assert later.waits.wait(PATIENCE_S)
    working.end()
    assert not measuring.entered.is_set()
    beside.end()
    assert measuring.entered.wait(PATIENCE_S) and not later.entered.is_set()
    measuring.end()
    assert later.entered.wait(PATIENCE_S) and later.told == [True, False]
    later.end()


def test_without_a_folder_or_locks_nobody_waits(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "not there"):
        alone = [Waiter(Machine(folder).alone) for _ in range(2)]
        assert all(waiter.entered.wait(PATIENCE_S) for waiter in alone)
        for waiter in alone:
            waiter.end()


def test_the_machines_folder_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(LOCKS)
    folder = machine_folder()
    assert folder is not None and folder.stat().st_mode & 0o077 == 0
    folder.rmdir()
    (tmp_path / f"inductor-debug-{os.getuid()}").symlink_to(tmp_path)
    assert machine_folder() is None
    monkeypatch.setenv(LOCKS, str(tmp_path / "another"))
    assert machine_folder() == tmp_path / "another"
