"""``inductor-debug`` and ``python -m pipeline``: help, stored runs, and what a job's end does to a sweep."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import inductor_debug.pipeline.run.runner as runner_module
from inductor_debug.pipeline import cli
from inductor_debug.pipeline.directory.summary import build_summary
from inductor_debug.pipeline.run.commands import entry
from inductor_debug.stages.artifacts.records import Run

ROOT = Path(__file__).resolve().parents[2]


def make_run(folder: Path, verdict: str = "passed", **about: Any) -> Path:
    """A stored run with the parts that are read here."""
    folder.mkdir(parents=True)
    (folder / "run.log").touch()
    run = {"id": folder.name, "model": "resnet18", "accel": "warn16", "backend": "inductor", "dtype": "float32"}
    stages = [{"name": "capture", "status": "passed", "seconds": 1.0, "message": "one graph"}]
    content = {"schema": 1, "run": run | about, "verdict": verdict, "stages": stages, "violations": {"total": 3}}
    (folder / "summary.json").write_text(json.dumps(content))
    return folder


def test_help_tells_every_choice_and_imports_neither_torch_nor_hydra(tmp_path: Path) -> None:
    heavy = ["torch", "hydra", "omegaconf", "pandas", "matplotlib", "transformers"]
    program = (
        "import sys; from inductor_debug.pipeline.run.commands.entry import main; main(['--help']); "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    for word in ("bert", "strict16", "aot_mock", "alignment_sweep", "kerneldiff", "accel.alignment", "--multirun"):
        assert word in done.stdout


def test_composing_imports_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from inductor_debug.pipeline.run.commands.entry import main; "
        "code = main(['--cfg', 'job', 'accel=strict16']); "
        "print(code, [m for m in ('torch', 'pandas', 'matplotlib', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
    assert "alignment: 16" in done.stdout


def test_folders_named_like_ours_in_the_working_directory_shadow_nothing(tmp_path: Path) -> None:
    for name in ("models", "stages", "conf"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong package')")
    done = subprocess.run(
        [sys.executable, "-m", "inductor_debug.pipeline", "--cfg", "job"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_list_and_show_read_the_stored_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "day" / "1-a", seconds=2.5)
    second = make_run(tmp_path / "day" / "2-b", verdict="failed", model="bert")

    assert cli.main(["list", str(tmp_path), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["model"], row["verdict"], row["violations"]) for row in rows] == [
        ("resnet18", "passed", 3),
        ("bert", "failed", 3),
    ]
    assert cli.main(["list", str(tmp_path)]) == 0
    assert str(second) in capsys.readouterr().out
    assert cli.main(["show", str(second)]) == 0
    shown = capsys.readouterr().out
    assert "failed" in shown and "one graph" in shown
    assert cli.main(["show", str(second), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "failed"


def test_the_jobs_of_a_sweep_come_in_the_order_of_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tenth and later ones too: as text ``10-`` comes before ``2-``."""
    monkeypatch.chdir(tmp_path)
    for number in range(12):
        make_run(Path("outputs/2026-03-01/09-30-00-sweep") / f"{number}-seed={number}")
    make_run(Path("outputs/2026-02-28/23-59-59-bert"))
    jobs = [f"{number}-seed={number}" for number in range(12)]

    def printed(*words: str) -> Any:
        assert cli.main([*words, "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert [Path(row["run"]).name for row in printed("list")] == [*jobs, "23-59-59-bert"]  # as they were started
    assert printed("analyze")["run"].endswith("23-59-59-bert")  # the newest is the one started last, whatever its name
    runs = printed("compare", "outputs/2026-03-01/09-30-00-sweep")["tables"]["runs"]
    assert [(row["run"], Path(row["id"]).name) for row in runs] == [
        (str(number + 1), name) for number, name in enumerate(jobs)
    ]


def test_a_speed_up_is_listed_with_its_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that holds 1 is no difference."""
    folder = make_run(tmp_path / "day" / "1-a")
    content = json.loads((folder / "summary.json").read_text())
    content["benchmark"] = {"speedup": 1.31, "speedup_ci95": [0.912, 1.7549]}
    (folder / "summary.json").write_text(json.dumps(content))
    assert cli.main(["list", str(tmp_path), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["speedup"], row["speedup_ci95"]) == (1.31, "0.912 to 1.75")


def test_a_speed_up_that_is_not_established_is_not_listed_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path / "day" / "1-a")
    content = json.loads((folder / "summary.json").read_text())
    reason = "other programs took 84 % of the 2 cores that timing needed"
    doubted = {"established": False, "not_established": reason}
    content["benchmark"] = {"speedup": 151.0, "speedup_ci95": [129.0, 292.0]} | doubted
    (folder / "summary.json").write_text(json.dumps(content))
    assert cli.main(["list", str(tmp_path), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["speedup"], row["speedup_ci95"]) == (None, "not established")
    assert cli.main(["show", str(folder)]) == 0
    assert reason in capsys.readouterr().out


def test_show_tells_of_guards_and_reproductions_where_there_are_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, folder = make_run(tmp_path / "day" / "1-a"), make_run(tmp_path / "day" / "2-b")
    guards = {"graphs": 1, "guards": 37, "recompiling": {"batch": ["static"]}, "limits_hit": 0}
    repros = [
        {"path": "repros/alignment-g0.py", "failure_class": "violation:alignment", "verified": True, "reason": ""}
    ]
    content = json.loads((folder / "summary.json").read_text()) | {"guards": guards, "repros": repros}
    (folder / "summary.json").write_text(json.dumps(content))
    assert cli.main(["show", str(folder)]) == 0
    shown = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    rows = [[cell.strip() for cell in line if cell] for line in shown]
    assert ["guards", "37"] in rows and ["recompiling", '{"batch": ["static"]}'] in rows and ["limits_hit", "0"] in rows
    assert ["path", "failure_class", "verified", "reason"] in rows
    assert ["repros/alignment-g0.py", "violation:alignment", "true"] in rows
    assert cli.main(["show", str(folder), "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["guards"], printed["repros"]) == (guards, repros)

    content = json.loads((plain / "summary.json").read_text()) | {"guards": dict.fromkeys(guards), "repros": []}
    (plain / "summary.json").write_text(json.dumps(content))
    assert cli.main(["show", str(plain)]) == 0
    assert not {"guards", "recompiling", "path"} & {line.split(" ")[0] for line in capsys.readouterr().out.splitlines()}


@pytest.mark.parametrize("content", [None, "{", "[]", "{}"])
def test_what_is_not_a_run_is_exit_code_2(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    assert cli.main(["show", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert str(tmp_path) in message and "inductor-debug" in message.partition("Try: ")[2] and "Traceback" not in message


def test_an_unknown_command_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lsit"]) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in ("lsit", "run, rerun, minify, list, show"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["report", "--format", "xml"], "report: Invalid value for '--format': 'xml' is not one of 'html', 'json', "),
        (["completion", "pwsh"], "completion: Invalid value for 'shell': 'pwsh' is not one of 'bash', 'zsh', 'fish'."),
    ],
)
def test_a_wrong_value_leads_to_the_help_of_its_command(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    said, hint = capsys.readouterr().err.splitlines()
    assert said.startswith(told) and hint == f"Try: inductor-debug {words[0]} --help"


HYDRA_FILES = ("config", "hydra", "overrides")


def test_every_end_of_a_job_leaves_the_others_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One job passes, one ends the process, one raises: all run, the table has all, the worst code is the sweep's."""
    ran: list[int] = []

    def run(
        config: Any, directory: Path, overrides: list[str], keep_rejected: bool, files: dict[str, str], **others: Any
    ) -> int:
        assert keep_rejected and others == {"flags": [], "expected": None}
        assert list(files) == [f".hydra/{name}.yaml" for name in HYDRA_FILES]
        ran.append(config.seed)
        if config.seed == 1:
            sys.exit(0)
        if config.seed == 2:
            raise RuntimeError("planted")
        about = Run(directory.name, model=config.model.name, overrides=overrides)
        (directory / "summary.json").write_text(json.dumps(build_summary(about, [], {}, 1.0, None)))
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner_module, "run", run)
    code = entry.main(["-m", "seed=0,1,2,3", "model.build.name=a/b"])

    assert ran == [0, 1, 2, 3]
    assert code == 3
    (sweep,) = tmp_path.glob("outputs/*/*-sweep")
    jobs = sorted(folder.name for folder in sweep.iterdir() if folder.is_dir())
    assert [name.partition("-")[0] for name in jobs] == ["0", "1", "2", "3"]
    assert len((sweep / "sweep.csv").read_text().splitlines()) == 5
    assert not list(tmp_path.rglob("__main__.log"))
    assert str(sweep / "sweep.csv") in capsys.readouterr().out


def only_run(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The one run below a working directory, and its summary."""
    (run,) = [file.parent for file in folder.glob("outputs/*/*/summary.json")]
    return run, json.loads((run / "summary.json").read_text())


@pytest.mark.parametrize(
    ("overrides", "shown"),
    [
        (["backend.adapter=my_package.MyAdapter"], "MyAdapter"),
        (["backend=eager", "backend.adapter=my_package:MyAdapter"], "MyAdapter"),
        (["backend.adapter=my_package.MyAdapter", "backend.name=my_chip"], "my_chip"),
        (["backend=dynamo", "backend.name=aot_eager"], "aot_eager"),
        (["backend=aot_mock"], "aot_mock"),
    ],
)
def test_a_run_is_called_after_the_adapter_that_compiled_it(
    overrides: list[str],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.main(["stages=[report]", *overrides]) == 0
    run, summary = only_run(tmp_path)
    assert run.name.endswith(f"-resnet18-none-{shown}")
    assert summary["run"]["backend"] == shown
    report = json.loads((run / "report/report.json").read_text())
    assert report["title"] == f"resnet18 on none, {shown}" and f"resnet18 with {shown} (" in report["sentence"]
    capsys.readouterr()
    assert cli.main(["list", "--format", "json"]) == 0
    assert [row["backend"] for row in json.loads(capsys.readouterr().out)] == [shown]


def printed_commands(run: Path) -> list[list[str]]:
    return [shlex.split(command) for command in json.loads((run / "report/report.json").read_text())["reproduce"]]


@pytest.mark.usefixtures("no_variables_that_matter")
def test_the_printed_commands_run_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my conf/accel").mkdir(parents=True)
    (tmp_path / "my conf/accel/my_chip.yaml").write_text("name: my_chip\nalignment: 64\n")
    monkeypatch.chdir(tmp_path)
    assert entry.main(["accel=my_chip", "stages=[report]", "--config-dir", "my conf", "seed=7"]) == 0
    (run, _) = only_run(tmp_path)
    typed, rerun = printed_commands(run)

    assert typed[:2] == ["inductor-debug", "run"] and rerun[0] == "inductor-debug"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert entry.main(typed[2:]) == 0
    again, summary = only_run(tmp_path / "elsewhere")
    assert (again / ".hydra/config.yaml").read_text() == (run / ".hydra/config.yaml").read_text()
    assert summary["run"]["accel"] == "my_chip"

    monkeypatch.chdir(tmp_path)
    assert cli.main([*rerun[1:], "--yes"]) == 0  # by the folder that the report prints
    (stored,) = [folder for folder in tmp_path.glob("outputs/*/*") if folder != run]
    assert (stored / ".hydra/config.yaml").read_text() == (run / ".hydra/config.yaml").read_text()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert entry.main(printed_commands(stored)[0][2:]) == 0  # a rerun's own command names the stored configuration
    assert len(list((tmp_path / "elsewhere").glob("outputs/*/*/summary.json"))) == 2


@pytest.mark.usefixtures("no_variables_that_matter")
def test_a_run_of_an_experiments_sweep_is_one_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert entry.main(["experiment=alignment_sweep", "accel.alignment=8,16", "stages=[report]"]) == 0
    jobs = sorted(tmp_path.glob("outputs/*/*-sweep/*/summary.json"))
    typed = printed_commands(jobs[0].parent)[0]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert entry.main(typed[2:]) == 0
    assert only_run(tmp_path / "elsewhere")[1]["run"]["accel"] == "warn16"


def test_a_folder_that_is_not_there_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", str(tmp_path / "nowhere")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "nowhere" in printed.err and "Try: inductor-debug list" in printed.err
    assert cli.main(["list", str(tmp_path)]) == 0


def test_a_run_whose_process_was_killed_is_listed_without_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "outputs/day/0-done")
    code = (
        "import os, sys; from inductor_debug.pipeline.run import runner\n"
        "from inductor_debug.pipeline.run.commands.entry import main\n"
        "runner.Runner.run = lambda self: os.kill(os.getpid(), 9)\n"
        "main(['model=bert', 'accel=warn8', 'backend.adapter=my_package.MyAdapter'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == -9
    monkeypatch.chdir(tmp_path)

    assert cli.main(["list", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    (killed,) = [row for row in rows if row["verdict"] == "no result"]
    assert [killed[key] for key in ("model", "accel", "backend", "dtype", "violations", "numerics")] == [
        "bert", "warn8", "MyAdapter", "float32", None, None]  # fmt: skip
    assert len(rows) == 2
    assert cli.main(["show", killed["run"]]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"{killed['run']}: no result") and f"Try: inductor-debug rerun {killed['run']}" in message
    assert len(message.splitlines()) == 2 and "0-done" not in message


def test_show_names_the_nearest_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(9):
        make_run(tmp_path / f"outputs/day/{number}-run")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["show", "outputs/day/7-rnu"]) == 2
    message = capsys.readouterr().err
    assert "7-run" in message and message.count("-run") == 3 and len(message.splitlines()) == 2


def test_an_interrupted_sweep_keeps_the_table_of_its_runs(tmp_path: Path) -> None:
    """The second of three runs gets SIGTERM while it works."""
    code = (
        "import glob, os, signal, sys\n"
        "from inductor_debug.pipeline.run.parent import session\n"
        "from inductor_debug.pipeline.run.commands.entry import main\n"
        "serve = session.WorkerSession.serve\n"
        "def terminated(self, check):\n"
        "    if glob.glob(f'{os.environ[\"SWEEP\"]}/1-*'): os.kill(os.getpid(), signal.SIGTERM)\n"
        "    serve(self, check)\n"
        "session.WorkerSession.serve = terminated\n"
        "sys.exit(main(['-m', 'seed=0,1,2', 'stages=[report]', f'hydra.sweep.dir={os.environ[\"SWEEP\"]}']))"
    )
    sweep = tmp_path / "sweep"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SWEEP": str(sweep)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 130, done.stdout + done.stderr
    rows = list(csv.DictReader((sweep / "sweep.csv").open()))
    assert [(row["override.seed"], row["verdict"]) for row in rows] == [("0", "passed"), ("1", "crashed")]
    assert "interrupted" in rows[1]["error"] and str(sweep / "sweep.csv") in done.stdout
    told = re.search(r"(?m)^interrupted\nTo go on from there: inductor-debug (run .*)\n$", done.stderr)
    assert told is not None, done.stderr
    again = shlex.split(told[1])
    assert again == ["run", "--multirun", "seed=0,1,2", "stages=[report]", f"hydra.sweep.dir={sweep}"]
    code = f"import sys; from inductor_debug.pipeline import cli; sys.exit(cli.main({again!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    rows = list(csv.DictReader((sweep / "sweep.csv").open()))
    assert [(row["override.seed"], row["verdict"]) for row in rows] == [(seed, "passed") for seed in "012"]
