"""Every command of README and docs is typed: runs are composed here, and made at full size by ``make test-full``.

What reads a stored run is typed here too, on a small run. The cookbook's answers have tests of their own
(:mod:`test_cookbook`).
"""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch
from command_line import SMALL, Finished
from cookbook_page import PIPELINE, read_page
from documented_commands import COMMANDS, PAGES, ROOT, STORED, Command, commands, within_sentences, write_files

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.run.commands import entry as command_line

COOKBOOK = "docs/how-to/cookbook.md"
ON_BASE = {text for entry in read_page()[1] if not any(text.startswith(PIPELINE) for text in entry.commands)
           for text in entry.commands}  # fmt: skip
"""Commands of the cookbook about the run that the page begins with."""
OF_CASE_STUDIES = "docs/case-studies/"
RUNS = [command for command in COMMANDS if command.overrides is not None]
SCRIPTS = [command for command in COMMANDS if re.match(r"(python )?tests/", command.text)]
ON_STORED = [command for command in SCRIPTS if {"RUN", "SWEEP"} & set(command.words)]
"""Scripts that read what the page has stored; others take hours, or a cluster."""
MAKE = [command for command in COMMANDS if command.words[0] == "make"]
SERVING = [command for command in COMMANDS if command.words[:2] == ["inductor-debug", "dashboard"]]
READING = [command for command in COMMANDS if command.words[0] == "inductor-debug" and command not in RUNS]
WAIT_S = 3000


def test_there_is_no_other_kind_of_command() -> None:
    """Each is one of those tested below, or runs a script that a run left."""
    left = [str(command) for command in COMMANDS if command not in [*RUNS, *SCRIPTS, *MAKE, *READING]]
    assert [line for line in left if not re.search(r": (python (RUN/|repros/)|pip install |eval )", line)] == []
    assert len(RUNS) > 70 and len(READING) > 30 and len(SCRIPTS) > 5


@pytest.mark.parametrize("command", MAKE, ids=str)
def test_make_knows_what_to_do(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a dry run: the run that it would make composes."""
    monkeypatch.chdir(ROOT)
    done = subprocess.run(["make", "--dry-run", *command.words[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *_, last = done.stdout.splitlines()
    assert command_line.main(["--cfg", "job", *last.partition(" run ")[2].split()]) == 0


def lacks_launcher(command: Command) -> bool:
    """Whether it wants a launcher of Hydra that is not installed: those of SLURM and Ray want environments of their
    own (``tests/trials``)."""
    wanted = {"slurm": "hydra-submitit-launcher", "ray": "hydra-ray-launcher", "joblib": "hydra-joblib-launcher"}
    there = {distribution.name for distribution in metadata.distributions()}
    return any(word == f"cluster={name}" and wanted[name] not in there for word in command.words for name in wanted)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_run_of_a_page_composes(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands on the page, full-size models and CUDA included; of a sweep each of its values."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write_files(page, tmp_path)
    for command in commands(page):
        if command.overrides is None or "--help" in command.overrides or lacks_launcher(command):
            continue
        for words in command.jobs():
            with monkeypatch.context() as patched:
                for name, value in command.variables.items():
                    patched.setenv(name, value)
                assert command_line.main(["--cfg", "job", *words]) == 0, f"{command}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("page", [page for page in PAGES if any(each.overrides for each in within_sentences(page))],
                         ids=lambda page: page.stem)  # fmt: skip
def test_every_run_within_a_sentence_composes(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for shown in (page, *PAGES):
        write_files(shown, tmp_path)
    for command in within_sentences(page):
        if command.overrides and "--help" not in command.words and not lacks_launcher(command):
            for words in command.jobs():
                words = [word.replace("my_chip", "inductor") for word in words]
                assert command_line.main(["--cfg", "job", *words]) == 0, f"{command}\n{capsys.readouterr().err}"


def typed(words: list[str], runs: list[str], sweeps: list[str]) -> list[str]:
    """A command with the stored runs that its words stand for: the newest first, A before B."""
    newest, sweep = itertools.cycle(reversed(runs)), itertools.cycle(reversed(sweeps or runs))
    accepted = dict.fromkeys(("outputs/accepted", "outputs/today"), runs[-1])
    folders = accepted | {"A": runs[0], "B": runs[-1], "NAME": "minified"}
    words = [re.sub(r"^RUN(?=/)|(?<==)RUN$", runs[-1], word) for word in words]
    words = [next(sweep) if word == "SWEEP" else word for word in words]
    return [folders.get(word) or (next(newest) if word in STORED else word) for word in words]


def answered(words: list[str]) -> list[str]:
    """A command that asks before it executes or removes something, with the answer: no terminal is there."""
    asks = {"--run", "--owner", "clean", "minify", "rerun"} & set(words) and "--yes" not in words
    place = words.index("--") if "--" in words else len(words)
    return [*words[:place], *(["--yes"] if asks else []), *words[place:]]


ASKED = [command for page in PAGES for command in within_sentences(page) if command.overrides is None]
"""Commands within sentences that read a stored run."""


@pytest.mark.parametrize(
    "command", [*(each for each in READING if each.page != COOKBOOK), *dict.fromkeys(ASKED)], ids=str
)
def test_a_stored_run_answers(
    command: Command,
    broken_run: Finished,
    inference_run: Finished,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On small runs. What a page says of the exit code is of its own model."""
    if command in SERVING:
        pytest.skip("it serves until it is ended: test_dashboard_in_browser.py")
    if {"rerun", "minify"} & set(command.words):
        pytest.skip("it runs a model: tests/pipeline/query and `make test-full` do")
    for made, name in ((inference_run, "0"), (broken_run, "1")):
        shutil.copytree(made.directory, tmp_path / "outputs/tour" / name)
    write_files(ROOT / command.page, tmp_path)
    (tmp_path / "limits.yaml").touch()
    for name, made in (("accepted", inference_run), ("new", broken_run)):
        shutil.copytree(made.directory, tmp_path / name / "0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    runs = [str(run.relative_to(tmp_path)) for run in store.find_runs(tmp_path / "outputs")]
    words = typed(command.words[1:], runs, [])
    small = {"resnet.py:96": "small_models.py"}
    words = [small.get(word, word) for word in words if word != "--owner"]  # test_repro_command.py has its layers
    words = answered(words)
    judging = words[0] in ("compare", "check", "repro", "doctor")  # 1: worse, misfit, not shown, not well
    assert cli.main(words) in ((0, 1) if judging else (0,)), capsys.readouterr().err


def test_a_script_that_a_run_left_shows_its_violation(made_once: Callable[..., Finished]) -> None:
    """As the page on run directories types it, in a run's folder."""
    run = made_once("strict", *SMALL, "accel=strict16", "stages=[capture,constrain]").directory
    script = min(str(path.relative_to(run)) for path in run.glob("repros/*.py"))
    typed_there = [command for command in COMMANDS if command.text.startswith("python repros/")]
    for command in typed_there:
        words = [script if word.startswith("repros/") else word for word in command.words[1:]]
        done = subprocess.run([sys.executable, *words], cwd=run, capture_output=True, text=True)
        assert done.returncode == command.code, f"{command}\n{done.stdout}{done.stderr}"
    assert typed_there


CHANGES = re.compile(r"^\| [^|]*\| `(python -m pipeline [^`]*)` \| [^|]*\| (fits|\d+)", re.MULTILINE)
"""In a case study's table of changes: the command, and how many findings are left."""


@pytest.mark.slow
@pytest.mark.timeout(WAIT_S)
@pytest.mark.parametrize(("text", "left"), [found for page in PAGES for found in CHANGES.findall(page.read_text())])
def test_a_change_leaves_as_many_findings_as_a_page_says(text: str, left: str, tmp_path: Path) -> None:
    _, _, _, *overrides = shlex.split(text)
    words = [sys.executable, "-m", "inductor_debug", "run", *overrides, "hydra.run.dir=run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = store.read_summary(tmp_path / "run")["violations"]
    assert int(left.replace("fits", "0")) in (found["total"], *found["by_rule"].values())


def on_gpu(command: Command) -> bool:
    """Whether it asks for CUDA, or for a kernel of Triton."""
    return "cuda" in command.text or "triton_" in command.text


@pytest.mark.slow
@pytest.mark.timeout(WAIT_S)
@pytest.mark.parametrize("page", [page for page in PAGES if {*commands(page)} & {*RUNS}], ids=lambda page: page.stem)
def test_a_page_at_full_size(page: Path, tmp_path: Path) -> None:
    """All of its commands in order, as they stand, in one folder, with the files that it or another page shows."""
    type_in_order(page, [command for command in commands(page) if not on_gpu(command)], tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="its commands ask for CUDA")
@pytest.mark.timeout(WAIT_S)
@pytest.mark.parametrize("page", [page for page in PAGES if any(map(on_gpu, commands(page)))],
                         ids=lambda page: page.stem)  # fmt: skip
def test_a_page_on_a_gpu(page: Path, tmp_path: Path) -> None:
    """Its blocks in which a command asks for CUDA, whole."""
    blocks = {command.block for command in commands(page) if on_gpu(command)}
    type_in_order(page, [command for command in commands(page) if command.block in blocks], tmp_path)


def type_in_order(page: Path, chosen: list[Command], tmp_path: Path) -> None:
    """Each has the exit code that the page tells."""
    for shown in (page, *PAGES):
        write_files(shown, tmp_path)
    (tmp_path / "limits.yaml").touch()
    (tmp_path / "outputs").mkdir(exist_ok=True)
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    ended = []
    for command in chosen:
        left = command.text.startswith(("python repros/", "pip ", "eval "))  # in a run's folder; about an environment
        other = command in MAKE or (command in SCRIPTS and command not in ON_STORED)
        if left or other or command in SERVING or lacks_launcher(command):
            continue
        runs = [str(run.relative_to(tmp_path)) for run in store.find_runs(tmp_path / "outputs")
                if "repro" not in command.words or (run / "repros").is_dir()]  # fmt: skip
        sweeps = [str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("sweep.csv")]
        _, *words = typed(command.words, runs, sweeps) if runs else command.words
        if command.overrides is not None:
            words = ["-m", "inductor_debug", "run", *words[len(words) - len(command.overrides) :]]
        elif command.words[0] == "inductor-debug":
            if command.page == COOKBOOK and command.text in ON_BASE and words[0] == "analyze":
                words[1:1] = runs[:1]
            words = ["-m", "inductor_debug", *answered(words)]
        elif command in ON_STORED:
            words[0] = str(ROOT / words[0])
        environment = os.environ | command.variables | {"PYTHONPATH": path}
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
                              timeout=WAIT_S)  # fmt: skip
        ended.append((str(command), done.returncode, command.code, (done.stdout + done.stderr)[-2000:]))
    compared = " compare "  # 1 where times of this machine differ too much
    wrong = [each for each in ended if each[1] != each[2] and not (compared in each[0] and each[1] == 1)]
    told = [f"{name}\nexit code {was}, not {wanted}:\n{said}" for name, was, wanted, said in wrong]
    assert wrong == [], "\n\n".join(told)
