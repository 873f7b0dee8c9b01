"""A run on a terminal: its progress, which leaves no trace, and its lines, which it does not tear; quiet and JSON."""

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from on_terminal import COLOR, command, environment, piped, plain, sent_to, shown
from rich.console import Console
from rich.progress import Progress as Bars

from inductor_debug.pipeline import live
from inductor_debug.pipeline.run.events import Finished, Progress, Started, Waiting
from inductor_debug.pipeline.run.parent.session import log_event
from inductor_debug.pipeline.run.progress import display

TESTS = Path(__file__).resolve().parents[2]
MODEL = ("model=custom", "model.build._target_=small_models.block", "model.name=block", "stages=[report]")
SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"
"""The cursor."""


def with_models(**more: str) -> dict[str, str]:
    found = environment(160, **more)
    return found | {"PYTHONPATH": os.pathsep.join([found["PYTHONPATH"], str(TESTS / "end_to_end")])}


def screen(sent: str) -> list[str]:
    """The lines that are left on a terminal: moves up, erased lines and carriage returns taken as it takes them."""
    lines, row = [""], 0
    for part in re.split(r"(\x1b\[1A|\x1b\[2K|\n)", sent):
        match part:
            case "\x1b[1A":
                row = max(row - 1, 0)
            case "\x1b[2K":
                lines[row] = ""
            case "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            case _:
                lines[row] += plain(part).replace("\r", "")
    return [line.rstrip() for line in lines]


def test_the_stage_is_shown_while_it_runs_and_the_last_three_lines_stay(tmp_path: Path) -> None:
    code, sent = shown(["run", *MODEL], tmp_path, with_models())
    assert code == 0 and "stage 1 of 1: report" in sent and COLOR.search(sent)
    assert sent.rindex(SHOWN) > sent.rindex(HIDDEN)
    left = [line for line in screen(sent) if line]
    assert [line.partition(" ")[0] for line in left[-3:]] == ["passed", "where:", "next:"]
    assert left[-4].startswith("report passed in") and not any("stage 1 of 1" in line for line in left)
    assert not any(line.endswith("…") for line in left)  # what the display says, no line says again
    assert "report …" in (next((tmp_path / "outputs").glob("*/*/run.log"))).read_text()


def test_a_pipe_gets_the_plain_lines(tmp_path: Path) -> None:
    done = piped(["run", *MODEL], tmp_path, with_models())
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "") and "report …" in lines and "\x1b" not in done.stdout
    assert [line.partition(" ")[0] for line in lines[-3:]] == ["passed", "where:", "next:"]


def heeding_interrupts() -> None:
    """As on a terminal: a shell has what it runs in the background ignore them, and a child inherits that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_takes_the_progress_away(tmp_path: Path) -> None:
    (tmp_path / "on_terminal_models.py").write_text("import time\ndef slow():\n    time.sleep(300)\n")
    main, child = pty.openpty()
    with subprocess.Popen(
        command(["run", *MODEL, "stages=[capture]", "model.build._target_=on_terminal_models.slow"]),
        stdin=subprocess.DEVNULL, stdout=child, stderr=child, cwd=tmp_path, preexec_fn=heeding_interrupts,
        env=with_models() | {"PYTHONPATH": f"{with_models()['PYTHONPATH']}{os.pathsep}{tmp_path}"},
    ) as process:  # fmt: skip
        os.close(child)
        begun = b""
        while b"starting" not in begun or not list(tmp_path.glob("outputs/*/*/run.log")):
            begun += os.read(main, 4096)
        process.send_signal(signal.SIGINT)
        sent = (begun + sent_to(main)).decode().replace("\r\n", "\n")
        assert process.wait(timeout=60) == 130
    os.close(main)
    assert sent.rindex(SHOWN) > sent.rindex(HIDDEN)
    left = [line for line in screen(sent) if line]
    told = left[left.index("interrupted") + 1 :]  # wrapped where the terminal ends
    assert told[0].startswith("To go on from there: inductor-debug run") and "model.build._target_" in "".join(told)
    assert not any("starting" in line for line in left)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Makes one the streams of this process."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    return stream


def test_a_sweep_shows_the_runs_that_are_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "inductor_debug")  # as a run sets it
    terminal = on_a_terminal(monkeypatch)
    with display(runs=3) as bars:
        for _ in range(2):
            bars.begin(["capture", "report"])
            log_event(Started("report", skipped=False))
            log_event(Progress("report", "[red]a stored text[/red] \x1b[2J"))
            assert "[red]a stored text[/red] \\u001b[2J" in picture(bars._bars)
            log_event(Waiting("another run times"))
            assert "stage 2 of 2: report" in (seen := picture(bars._bars)) and "waiting: another run" in seen
            log_event(Finished("report", "passed", 1.0, ""))
            bars.end()
        assert "2 of 3 runs" in picture(bars._bars)
    assert not [line for line in screen(terminal.getvalue()) if line]


def picture(bars: Bars) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as capture:
        console.print(bars.get_renderable())
    return capture.get()


def test_an_exception_takes_the_progress_away_and_streams_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, kept = on_a_terminal(monkeypatch), None
    with pytest.raises(ZeroDivisionError), display():
        kept = sys.stdout
        kept.write("half a line")
        raise ZeroDivisionError
    assert sys.stdout is terminal and kept is not None
    kept.write(", and more of it\n")  # as a handler of logging that keeps the stream
    assert [line for line in screen(terminal.getvalue()) if line] == ["half a line, and more of it"]


def test_items_are_counted_once_they_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_a_terminal(monkeypatch)
    monkeypatch.setattr(live, "AFTER_S", 1e9)
    with live.tracked([1, 2], "reading runs") as items:
        assert list(items) == [1, 2]
    assert terminal.getvalue() == ""
    monkeypatch.setattr(live, "AFTER_S", -1.0)
    with live.tracked(["a", "b", "c"], "reading [bold]runs\x1b[2J") as items:
        assert list(items) == ["a", "b", "c"]
    assert "reading [bold]runs\\u001b[2J" in terminal.getvalue() and "2/3" in terminal.getvalue()
    assert not [line for line in screen(terminal.getvalue()) if line]


def test_quiet_says_the_last_three_lines_alone(tmp_path: Path) -> None:
    done = piped(["-q", "run", *MODEL], tmp_path, with_models())
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()] == ["passed", "where:", "next:"]
    again = piped(["run", *MODEL, "--quiet", "-m", "seed=1,2"], tmp_path, with_models())
    assert len(again.stdout.splitlines()) == 1 and "sweep of 2 runs: 2 passed" in again.stdout
    wrong = piped(["run", "-q", "model=nosuch"], tmp_path, with_models())
    assert (wrong.returncode, wrong.stdout) == (2, "") and wrong.stderr.startswith("model: got 'nosuch'")


def test_verbose_says_what_is_for_debugging(tmp_path: Path) -> None:
    words = ["run", "-v", *MODEL, "stages=[capture]"]
    assert "capture: AOTAutograd: 1 forward" in piped(words, tmp_path, with_models()).stdout
    both = piped(["run", "-v", "-q", *MODEL], tmp_path, with_models())
    assert both.returncode == 2 and both.stderr.startswith("command line: got --quiet and --verbose")


def test_json_of_a_run_is_alone_on_standard_output(tmp_path: Path) -> None:
    done = piped(["run", "--format", "json", *MODEL], tmp_path, with_models())
    found = json.loads(done.stdout)
    assert found["exit_code"] == 0 and found["summary"]["verdict"] == "passed" and Path(found["run"]).is_dir()
    assert "report …" in done.stderr.splitlines()
    sweep = json.loads(piped(["run", "--format=json", *MODEL, "-m", "seed=1,2"], tmp_path, with_models()).stdout)
    assert len(sweep["runs"]) == 2 and Path(sweep["table"]).is_file()
