"""A package's stage, rule, metric, backend and profile are found; its run is read where the package is not there."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SMALL, TESTS, Finished, command

PACKAGE = TESTS / "vendor_package"
CLI = "inductor_debug.pipeline.cli"


def installed(folder: Path) -> Path:
    """Metadata of the example package, as an installer would write it, in a folder."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = (f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
              for group, points in project["entry-points"].items())  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join(groups))
    return folder


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command where the example package is installed."""
    site = installed(tmp_path_factory.mktemp("site"))
    paths = [str(site), str(PACKAGE / "src"), os.environ.get("PYTHONPATH", "")]

    def run(*arguments: str, cwd: Path, module: str = "inductor_debug.pipeline") -> subprocess.CompletedProcess[str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
            return command(*arguments, cwd=cwd, module=module)

    return run


@pytest.fixture(scope="module")
def added(
    beside: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> Finished:
    """One run of the package's stage, under its profile with its rule, for its backend, compared with its metric."""
    cwd = tmp_path_factory.mktemp("work")
    stages = "stages=[capture,constrain,kerneldiff,acme_energy,report]"
    done = beside(
        *SMALL,
        "accel=acme_small",
        "backend=acme",
        stages,
        "stages.acme_energy.picojoules=2.0",
        "stages.kerneldiff.plots=false",
        cwd=cwd,
    )
    output = done.stdout + done.stderr
    (directory,) = (path.parent for path in cwd.glob("outputs/*/*/summary.json"))
    return Finished(done.returncode, output, directory)


def test_a_packages_stage_runs_between_ours(added: Finished) -> None:
    assert added.code == 0, added.output
    assert list(added.statuses().items()) == [
        ("capture", "passed"),
        ("constrain", "passed"),
        ("kerneldiff", "passed"),
        ("acme_energy", "passed"),
        ("report", "passed"),
    ]
    table = added.table("acme_energy/operations.csv")
    assert added.summary["acme_energy"]["microjoules"] == pytest.approx(table["microjoules"].sum())
    assert len(table) > 1 and (table["microjoules"] > 0).all()
    assert added.json("manifest.json")["versions"]["acme-npu-backend"] == "0.3.0"
    assert added.json("manifest.json")["digest_inputs"]["acme_energy/operations.csv"] == []


def test_its_rule_profile_and_backend_are_in_the_run(added: Finished) -> None:
    found = added.table("constrain/violations.csv")
    assert set(found["rule"]) == {"custom"} and found["message"].str.fullmatch(r"\w+: reads \d tensors").all()
    assert added.summary["violations"]["profile"] == "acme_small"
    assert added.summary["run"]["backend"] == "acme"


def test_its_metric_is_a_column_of_the_comparison(added: Finished) -> None:
    outputs = added.table("kerneldiff/outputs.csv")
    tensors = outputs[outputs["max_abs"].notna()]
    share = tensors["acme_range_share"]
    assert len(share) > 1 and (share * 65504 >= tensors["reference_rms"] * 0.99).all() and (share < 1e-3).all()


def test_its_section_is_in_the_report(added: Finished) -> None:
    page = (added.directory / "report" / "report.html").read_text()
    assert page.index('id="title-numerics">Is it right?') < page.index('id="title-acme_energy">What does a step cost?')
    report = added.json("report/report.json")
    assert [told for told in report["findings"] if told.endswith("µJ on acme.")]
    assert report["acme_energy"]["count"] == len(added.table("acme_energy/operations.csv"))


def test_its_question_is_asked_where_the_package_is(
    added: Finished, beside: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    run = str(added.directory)
    asked = beside("analyze", run, "--type", "acme_energy", cwd=added.directory, module=CLI)
    assert (asked.returncode, asked.stderr) == (0, "") and "µJ a step" in asked.stdout
    overview = beside("analyze", run, cwd=added.directory, module=CLI)
    assert "which operations cost the energy?" in overview.stdout


def test_the_run_is_read_where_the_package_is_not(added: Finished) -> None:
    run = str(added.directory)
    shown = command("show", run, cwd=added.directory, module=CLI)
    assert shown.returncode == 0 and "microjoules" in shown.stdout and "acme_energy" in shown.stdout
    runs = command("list", str(added.directory.parent), cwd=added.directory, module=CLI)
    assert runs.returncode == 0 and "passed" in runs.stdout
    for words, code in ((["analyze", run], 0), (["check", run, "accel=strict8"], 1), (["compare", run, run], 1)):
        done = command(*words, cwd=added.directory, module=CLI)
        assert done.returncode == code, done.stdout + done.stderr
    asked = command("analyze", run, "--type", "acme_energy", cwd=added.directory, module=CLI)
    gone = "made with acme-npu-backend 0.3.0, which is not installed here"
    assert asked.returncode == 2 and f"--type: got 'acme_energy' (in a run that was {gone}); valid: " in asked.stderr
    again = command("rerun", run, "--yes", cwd=added.directory, module=CLI)
    assert again.returncode == 2 and gone in again.stderr, again.stderr
    again = command("rerun", run, "--yes", "--anyway", cwd=added.directory, module=CLI)
    assert again.returncode == 2 and gone in again.stderr and "stages: got 'acme_energy'" in again.stderr, again.stderr


def test_a_wrong_option_of_it_is_one_message(
    beside: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    stages = "stages=[capture,acme_energy]"
    done = beside(*SMALL, stages, "stages.acme_energy.picojoules=0", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("stages.acme_energy.picojoules: got 0")
    done = beside(*SMALL, stages, "stages.acme_energy.picojuoles=1", cwd=tmp_path)
    assert done.returncode == 2 and "stages.acme_energy.picojoules" in done.stderr
    done = beside(*SMALL, "stages=[acme_energy]", cwd=tmp_path)
    assert done.returncode == 2 and "acme_energy needs capture, which is not selected" in done.stderr


def test_what_the_parent_imports_of_it_imports_no_torch() -> None:
    code = "import sys, acme_npu.energy.section, acme_npu.energy.declaration; print('torch' in sys.modules)"
    paths = os.pathsep.join([str(PACKAGE / "src"), str(TESTS.parent)])
    command = [sys.executable, "-P", "-c", code]
    alone = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)
    assert alone.stdout.strip() == "False", alone.stderr
