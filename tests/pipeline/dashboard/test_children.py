"""Runs that are started on the page wait for each other, and need no page."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import until

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.cache.turns import LOCKS
from inductor_debug.pipeline.dashboard.children import KEPT, Children, State, Ticket

PROGRAM = """
import os, sys, time
from pathlib import Path
started, ends = map(Path, sys.argv[1:3])
started.write_text(str(os.getpid()))
print("said", flush=True)
while not ends.exists():
    time.sleep(0.02)
"""
"""Stands for a run: says that it started, and ends once it is told to."""
WAIT_S = 60


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    found = Children(tmp_path, (sys.executable, "-c", PROGRAM))
    yield found
    for ticket in found.tickets():
        found.stop(ticket)
        until(lambda ticket=ticket: found.state(ticket) == State.ENDED)  # type: ignore[misc]


def started(children: Children, name: str) -> tuple[Ticket, Path, Path]:
    """A run's ticket, the file that it writes when its turn has come, and the one that ends it."""
    begins, ends = children.root / f"{name}.started", children.root / f"{name}.ends"
    return children.start([str(begins), str(ends)], name), begins, ends


def test_one_begins_when_the_one_before_has_ended(children: Children) -> None:
    first, first_begins, first_ends = started(children, "a")
    until(first_begins.exists)
    second, second_begins, second_ends = started(children, "b")
    third, third_begins, third_ends = started(children, "c")
    assert children.state(first) == State.RUNNING
    assert children.state(second) == children.state(third) == State.WAITING
    assert [ticket.number for ticket in children.tickets()] == [third.number, second.number, first.number]
    first_ends.touch()
    until(second_begins.exists)
    assert (children.state(first), children.state(third)) == (State.ENDED, State.WAITING)
    assert not third_begins.exists()
    second_ends.touch()
    until(third_begins.exists)
    third_ends.touch()
    until(lambda: children.state(third) == State.ENDED)
    assert children.said(third) == "said\n"


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"])
def test_a_run_that_waits_or_runs_is_stopped(children: Children, handler: Any) -> None:
    """Also where the server was started in a shell's background, whose processes ignore SIGINT."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        stop_both(children)
    finally:
        signal.signal(signal.SIGINT, before)


def stop_both(children: Children) -> None:
    first, begins, _ = started(children, "a")
    until(begins.exists)
    second, second_begins, _ = started(children, "b")
    children.stop(second)
    until(lambda: children.state(second) == State.ENDED)
    assert children.state(first) == State.RUNNING and not second_begins.exists()
    assert children.stopped(second) and not children.stopped(first)
    children.stop(first)
    until(lambda: children.state(first) == State.ENDED)
    children.stop(first)  # whoever has its number now is left alone


def test_a_run_outlives_whoever_started_it_and_so_does_one_that_waits(children: Children) -> None:
    script = f"""
import os, signal, sys
from pathlib import Path
from inductor_debug.pipeline.dashboard.children import Children
children = Children(Path({str(children.root)!r}), (sys.executable, "-c", {PROGRAM!r}))
for name in "ab":
    children.start([str(children.root / (name + ".started")), str(children.root / (name + ".ends"))], name)
os.killpg(0, signal.SIGKILL)  # as Ctrl-C at the server does: all that belongs to it
"""
    assert subprocess.run([sys.executable, "-c", script], start_new_session=True).returncode == -signal.SIGKILL
    until((children.root / "a.started").exists)
    second, first = children.tickets()
    assert (children.state(first), children.state(second)) == (State.RUNNING, State.WAITING)
    (children.root / "a.ends").touch()
    until((children.root / "b.started").exists)
    assert children.state(second) == State.RUNNING
    (children.root / "b.ends").touch()
    until(lambda: children.state(second) == State.ENDED)


def test_a_killed_run_lets_the_next_begin(children: Children) -> None:
    first, begins, _ = started(children, "a")
    until(begins.exists)
    _, second_begins, second_ends = started(children, "b")
    os.kill(first.pid, signal.SIGKILL)
    until(second_begins.exists)
    second_ends.touch()


def test_the_directory_is_below_the_root_and_named(tmp_path: Path) -> None:
    program = tmp_path / "words.json"
    echo = f"import json, sys; open({str(program)!r}, 'w').write(json.dumps(sys.argv[1:]))"
    children = Children(tmp_path / "it's outputs", (sys.executable, "-c", echo))
    ticket = children.start(["model=bert", "dtype=float16"], "bert-../none")
    until(lambda: children.state(ticket) == State.ENDED)
    directory = Path(ticket.directory)
    assert directory.parents[1] == children.root and directory.name.endswith("-bert-.._none")
    *words, run, sweep = json.loads(program.read_text())
    assert words == ticket.words == ["model=bert", "dtype=float16"]
    from hydra.core.override_parser.overrides_parser import OverridesParser

    for word, key in ((run, "hydra.run.dir"), (sweep, "hydra.sweep.dir")):
        parsed = OverridesParser.create().parse_override(word)
        assert (parsed.key_or_group, parsed.value()) == (key, str(directory))


def test_what_a_strangers_folder_holds_is_no_ticket(children: Children) -> None:
    ticket, _, ends = started(children, "a")
    assert not children.folder.is_relative_to(children.root) and children.folder.stat().st_mode & 0o777 == 0o700
    planted = children.root / ".dashboard"
    planted.mkdir()
    (planted / "1.json").write_text((children.folder / f"{ticket.number}.json").read_text())
    assert children.tickets() == [ticket]
    ends.touch()


def test_a_ticket_that_could_not_be_written_starts_nothing(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(UserError, match="No space left"):
            started(children, "a")
    second, begins, ends = started(children, "b")
    until(begins.exists)
    ends.touch()
    assert children.tickets() == [second] and not (children.root / "a.started").exists()


def test_a_clock_that_was_set_back_changes_no_turn(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    first, begins, ends = started(children, "a")
    until(begins.exists)
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    second, second_begins, second_ends = started(children, "b")
    third, _, _ = started(children, "c")
    assert first.number < second.number < third.number
    assert (children.state(first), children.state(second)) == (State.RUNNING, State.WAITING)
    ends.touch()
    until(second_begins.exists)
    second_ends.touch()


def test_those_that_are_started_at_once_run_one_by_one(children: Children) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda name: started(children, name), "abcdef"))
    order = sorted(found, key=lambda each: each[0].number)
    assert len({ticket.number for ticket, _, _ in found}) == 6
    for ticket, begins, ends in order:
        until(begins.exists)
        assert sum(children.state(each) == State.RUNNING for each, _, _ in found) == 1
        ends.touch()
        until(lambda ticket=ticket: children.state(ticket) == State.ENDED)  # type: ignore[misc]


def test_an_ended_run_leaves_no_process(children: Children) -> None:
    ticket, begins, ends = started(children, "a")
    until(begins.exists)
    ends.touch()
    until(lambda: children.state(ticket) == State.ENDED)
    until(lambda: bool(children.tickets()) and not psutil.pid_exists(ticket.pid))


def test_only_the_newest_tickets_stay(children: Children) -> None:
    children.folder.mkdir()
    for number in range(KEPT + 5):
        (children.folder / f"{number:020d}.json").touch()
        (children.folder / f"{number:020d}.log").touch()
    ticket, _, ends = started(children, "a")
    ends.touch()
    left = sorted(path.stem for path in children.folder.glob("*.json"))
    assert len(left) == KEPT + 1 and left[-1] == ticket.number
    assert len(list(children.folder.glob("*.log"))) == KEPT + 1


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(LOCKS, str(tmp_path / "file"))
    with pytest.raises(UserError, match=rf"{LOCKS}: got .*no folder of its own"):
        Children(tmp_path)
