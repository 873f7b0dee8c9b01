"""What a terminal is shown of stored runs, and a pipe is not: colors, and tables that fit its width."""

import subprocess
import sys
from pathlib import Path

import pytest
from on_terminal import COLOR, environment, piped, plain, shown
from rich.cells import cell_len
from test_cli_commands import make_run

from inductor_debug.pipeline.terminal import cell
from inductor_debug.pipeline.terminal_tables import colored, drawn

MARKUP = "[red]no[/red] [link=file:///x]here[/link] :smile: [bold"
NAME = "2026-01-02/12-00-00-000000-resnet18-warn16-inductor"


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    make_run(tmp_path / "outputs" / NAME, "failed")
    return tmp_path


def test_a_terminal_gets_the_verdict_in_color(outputs: Path) -> None:
    code, sent = shown(["list"], outputs, environment(200))
    assert code == 0
    assert "\x1b[31mfailed" in sent and "\x1b[1m" in sent
    assert f"outputs/{NAME}" in plain(sent) and "─" in sent
    make_run(outputs / "outputs/2026-01-03/passing", "passed")
    assert "\x1b[32mpassed" in shown(["list"], outputs, environment(200))[1]


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "0", "COLORTERM": "truecolor"}]
)
def test_a_terminal_that_wants_no_color_gets_none(outputs: Path, variables: dict[str, str]) -> None:
    _, sent = shown(["list"], outputs, environment(200, **variables))
    assert "failed" in sent and not COLOR.search(sent)


def test_a_dumb_terminal_gets_no_escape_at_all(outputs: Path) -> None:
    assert "\x1b" not in shown(["list"], outputs, environment(200, TERM="dumb"))[1]


def test_a_pipe_gets_plain_lines_each_whole(outputs: Path) -> None:
    done = piped(["list"], outputs, environment(20))
    header, row, _ = done.stdout.split("\n", 2)
    assert header.split()[:2] == ["run", "model"] and "\x1b" not in done.stdout and "─" not in done.stdout
    assert row.split()[:2] == [f"outputs/{NAME}", "resnet18"]
    assert piped(["list"], outputs, environment(20, FORCE_COLOR="1")).stdout == done.stdout


def test_a_stored_text_is_no_markup_and_steers_nothing(tmp_path: Path) -> None:
    make_run(tmp_path / "outputs/a/one", accel=f"{MARKUP}\x1b[2J")
    for words in (["list"], ["show", "outputs/a/one"]):
        _, sent = shown(words, tmp_path, environment(300))
        assert f"{MARKUP}\\u001b[2J" in plain(sent)
        assert "\x1b[2J" not in sent and "\x1b]8" not in sent
    _, sent = shown(["show", "[red]x[/red]"], tmp_path, environment(300))
    assert "[red]x[/red]" in plain(sent)


def test_a_narrow_terminal_gets_a_run_as_lines_of_its_own(outputs: Path) -> None:
    lines = plain(shown(["list"], outputs, environment(60))[1]).splitlines()
    assert max(map(len, lines)) <= 60 and lines[0] == f"outputs/{NAME}"
    assert "  dtype: float32  mode: -  verdict: failed  violations: 3" in lines


@pytest.mark.parametrize("columns", [30, 60, 90, 140])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ["source", "verdict", "what it says"]
    rows = [["/a/long/path/" * 12, "defect", "several words of a sentence " * 9], ["漢字" * 40, "exact", "-"]]
    sent = plain(drawn(names, rows, sys.stdout))
    assert max(map(cell_len, sent.splitlines())) <= columns
    for text in (rows[0][0], rows[1][0]):
        assert all(sent.count(letter) >= text.count(letter) for letter in set(text))
    assert sent.count("sentence") == 9 and "…" not in sent
    assert ("verdict: defect" in sent) == (columns < 140)  # a cell would take more than five lines


@pytest.mark.parametrize("columns", [100, 160, 220])
def test_a_column_of_words_beside_columns_of_paths_keeps_every_word(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    words = [f"unsqueeze_{number}" for number in range(100, 116)]
    paths = [
        "g0.forward",
        "a/long/path/" * 6,
        "cpp",
        "b/path/" * 5,
        "3",
        "x = y",
        "c/path/" * 14,
        "d/path/" * 5,
        "12",
        "7",
    ]
    sent = plain(drawn(["a_name_of_a_column"] * 11, [[*paths, " ".join(words)]], sys.stdout))
    assert max(map(cell_len, sent.splitlines())) <= columns
    assert [word for word in words if word not in sent.split()] == []


def test_messages_break_between_words_and_a_command_stays_whole(tmp_path: Path) -> None:
    _, sent = shown(["list", "a", "nosuch=b"], tmp_path, environment(60))
    told = piped(["list", "a", "nosuch=b"], tmp_path, environment(60)).stderr
    assert max(map(len, told.splitlines())) > 60 >= max(map(len, sent.splitlines()))
    assert sent.split() == told.split()
    long = ["analyze", f"{'x' * 80}"]
    assert sum(line.startswith("Try: ") for line in shown(long, tmp_path, environment(60))[1].splitlines()) == 1


def test_help_fits_the_terminal(tmp_path: Path) -> None:
    for words in (["--help"], ["check", "--help"], ["run", "--help"]):
        code, sent = shown(words, tmp_path, environment(60))
        assert code == 0 and max(map(len, sent.splitlines())) <= 60


def test_a_pipe_and_help_do_without_rich(outputs: Path) -> None:
    """It takes a moment to import."""
    program = ("import sys; from inductor_debug.pipeline import cli; cli.main(['list']); cli.main(['--help']); "
               "print([name for name in sys.modules if name.partition('.')[0] == 'rich'])")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=outputs, env=environment(), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_quiet_leaves_advice_out_and_errors_in(outputs: Path) -> None:
    words = ["clean", "verdict=crashed"]
    assert piped(words, outputs, environment()).stderr == "nothing to remove\n"
    assert piped(["--quiet", *words], outputs, environment()).stderr == ""
    assert "no folder 'nosuch'" in piped(["-q", "list", "nosuch"], outputs, environment()).stderr
    assert "got --quiet and --verbose" in piped(["-q", "-v", "list"], outputs, environment()).stderr


def test_a_command_that_takes_no_run_starts_logging_on_standard_error_with_verbose(outputs: Path) -> None:
    program = ("import logging, sys; from inductor_debug.pipeline import cli; cli.main([*sys.argv[1:], 'list']); "
               "logging.getLogger('inductor_debug.any').debug('a detail')")  # fmt: skip
    for words, told in ((["-v"], "[inductor_debug.any][DEBUG] - a detail\n"), ([], "")):
        done = subprocess.run([sys.executable, "-c", program, *words], cwd=outputs, env=environment(),
                              capture_output=True, text=True)  # fmt: skip
        assert done.stderr.endswith(told) and bool(done.stderr) == bool(told) and "detail" not in done.stdout


def test_verbose_tells_which_files_a_command_read(outputs: Path) -> None:
    told = piped(["-v", "list"], outputs, environment()).stderr.splitlines()
    size = (outputs / "outputs" / NAME / "summary.json").stat().st_size
    assert f"[inductor_debug.models.stored][DEBUG] - read outputs/{NAME}/summary.json: {size} bytes" in told
    assert piped(["list"], outputs, environment()).stderr == ""


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["list", "-q"], "-q list"),
        (["-q", "list", "-v"], "-v list"),
        (["show", "--verbose", "x y"], "--verbose show 'x y'"),
    ],
)
def test_a_flag_of_all_commands_behind_one_is_told_its_place(outputs: Path, words: list[str], again: str) -> None:
    done = piped(words, outputs, environment())
    assert done.returncode == 2 and done.stderr.endswith(
        f"behind the command; valid: before it.\nTry: inductor-debug {again}\n"
    )


def test_a_number_is_read_and_not_decoded() -> None:
    values = (0.45051, 9974.2, 9999.96, 5.2e7, 5e9, -12345.6, 1.5e-9, 12, "1e-9", None)
    told = ["0.4505", "9974", "10000", "52000000", "5e+09", "-12346", "1.5e-09", "12", "1e-9", "-"]
    assert [cell(value) for value in values] == told


def test_a_state_has_its_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert colored("ok      Python: ok", "ok", sys.stdout) == "\x1b[32mok\x1b[0m      Python: ok\n"
    assert colored("[red]x[/red]", "x", sys.stdout) == "[red]x[/red]\n"
