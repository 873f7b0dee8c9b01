"""Installed from a wheel, beside a repository with packages of the names that ours have in the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("models", "stages", "conf", "pipeline")
NETS = """
import torch
from models import WIDTH


class Net(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


def build():
    return Net(WIDTH, 8), (torch.randn(2, WIDTH),)
"""
SECOND_COPIES = """
import sys
from pathlib import Path
ours = Path(sys.modules["inductor_debug"].__file__).resolve().parent
others = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())
          if name.partition(".")[0] not in ("inductor_debug", "__main__")}
second = [name for name, file in others.items() if file and Path(file).resolve().is_relative_to(ours)]
assert not second, second
assert "site" in ours.parts, ours
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages that holds the wheel's content."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    installed = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert sorted(path.name.partition("-")[0] for path in installed.iterdir()) == ["inductor_debug", "inductor_debug"]
    return installed


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's, with packages of our names."""
    folder = tmp_path_factory.mktemp("repository")
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("WIDTH = 4\nOWN = True\n")
    (folder / "models" / "nets.py").write_text(NETS)
    return folder


def run(site: Path, cwd: Path, *words: str) -> str:
    """What a command prints, the wheel first on the path and the repository as ``python -m`` would put it."""
    variables = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_command_line_builds_the_users_model(site: Path, repository: Path) -> None:
    told = run(
        site, repository, "-m", "inductor_debug.pipeline", "model=custom", "model.build._target_=models.nets.build",
        "stages=[capture,constrain]", "accel=warn16", "hydra.run.dir=first",
    )  # fmt: skip
    assert "Dynamo captured 1 graph, with no graph break. AOTAutograd turned it into " in told
    assert (repository / "first" / "constrain" / "violations.csv").read_text().count("\n") > 1
    assert "models/nets.py" in (repository / "first" / "capture" / "graphs" / "g0.forward.json").read_text()


def test_no_second_copy_is_imported(site: Path, repository: Path) -> None:
    code = (
        "import sys; from inductor_debug.pipeline.run.commands.entry import main\n"
        "words = ['model=custom', 'model.build._target_=models.nets.build', 'stages=[capture]']\n"
        "assert main([*words, 'hydra.run.dir=second', 'runner.isolation=none']) == 0\n"
        "import models, stages, conf, pipeline; assert models.OWN and stages.OWN and conf.OWN and pipeline.OWN\n"
    )
    run(site, repository, "-c", code + SECOND_COPIES)


def test_the_library_and_the_backends_by_name(site: Path, repository: Path) -> None:
    code = (
        "import torch, inductor_debug; from models.nets import build\n"
        "module, inputs = build()\n"
        "compiled = torch.compile(module, backend='mock')\n"
        "inductor_debug.assert_matches(module(*inputs), compiled(*inputs))\n"
        "assert inductor_debug.compare_tensors(inputs[0], inputs[0]).verdict == 'exact'\n"
        "assert inductor_debug.load_profile('warn16').name == 'warn16'\n"
        "assert set(inductor_debug.__all__) == set(inductor_debug._PLACES) <= set(dir(inductor_debug))\n"
        "assert all(getattr(inductor_debug, name) is not None for name in inductor_debug.__all__)\n"
    )
    run(site, repository, "-c", code + SECOND_COPIES)


def test_a_former_name_of_ours_means_ours_unless_the_user_has_it(site: Path, repository: Path) -> None:
    code = (
        "from inductor_debug.models.target import resolve_target as of\n"
        "assert of('models.ssm.build', 'k').__module__ == 'inductor_debug.models.ssm'\n"
        "assert of('models.nets.build', 'k').__module__ == 'models.nets'\n"
        "assert of('stages.lower.PlantedFault', 'k').__module__.startswith('inductor_debug.stages')\n"
    )
    run(site, repository, "-c", code)
    (repository / "models" / "ssm.py").write_text("def build(): ...\n")
    run(site, repository, "-c", "from inductor_debug.models.target import resolve_target as of\n"
        "assert of('models.ssm.build', 'k').__module__ == 'models.ssm'\n")  # fmt: skip
    (repository / "models" / "ssm.py").unlink()


def test_a_checkout_runs_its_own_code_whatever_is_installed(tmp_path: Path) -> None:
    checkout, marker = tmp_path / "checkout", tmp_path / "ran"
    for name in (*NAMES, "inductor_debug"):
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    with (checkout / "stages" / "report" / "stage.py").open("a") as file:
        file.write(f"\nopen({str(marker)!r}, 'w').close()\n")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "stages=[report]", f"hydra.run.dir={tmp_path / 'run'}"],
        cwd=checkout, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "summary.json").is_file() and marker.exists()
