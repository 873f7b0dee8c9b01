"""Which files are libraries, in environments that have packages in more than one folder."""

import importlib
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import inductor_debug
from inductor_debug.models.case import Case
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.records import SourceLine
from inductor_debug.stages.graphs.sources import SourceFinder

HELPERS = "def doubled(x):\n    return x * 2\n"
MODEL = """\
import layered_helpers
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return layered_helpers.doubled(x)  # the model's line
"""


def installed(folder: Path) -> Path:
    """A library as ``pip install --target`` leaves it."""
    (folder / "layered_helpers-1.0.dist-info").mkdir(parents=True)
    (folder / "layered_helpers.py").write_text(HELPERS)
    return folder


def line_of_the_product(folder: Path) -> str:
    (folder / "layered_model.py").write_text(MODEL)
    module = importlib.import_module("layered_model").Model()
    case = Case("model", module, (torch.ones(2),), {}, "inference", torch.float32, torch.device("cpu"))
    calls = [node for graph in capture(case).graphs for node in graph.nodes if node.op.startswith("call_")]
    (line,) = {node.source.code for node in calls if node.source is not None}
    return line


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("layered_helpers", "layered_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return monkeypatch


def test_what_is_installed_in_a_folder_of_pythonpath_is_a_library(imports: pytest.MonkeyPatch, tmp_path: Path) -> None:
    imports.syspath_prepend(installed(tmp_path / "target"))
    imports.syspath_prepend(tmp_path)
    assert line_of_the_product(tmp_path) == "return layered_helpers.doubled(x)  # the model's line"


def test_what_is_not_installed_is_the_users(imports: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "layered_helpers.py").write_text(HELPERS)
    imports.syspath_prepend(tmp_path / "target")
    imports.syspath_prepend(tmp_path)
    assert line_of_the_product(tmp_path) == "return x * 2"


def test_packages_of_the_environment_below_are_libraries(tmp_path: Path) -> None:
    """A virtual environment over this one, as ``--system-site-packages`` and ``PYTHONPATH`` make them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    below = [str(Path(inductor_debug.__file__).parent.parent), sysconfig.get_paths()["purelib"]]
    program = f"""
import sysconfig
from inductor_debug.stages.graphs.records import SourceLine
from inductor_debug.stages.graphs.sources import SourceFinder
assert sysconfig.get_paths()["purelib"] != {below[1]!r}
frames = [SourceLine("/home/user/model.py", 3), SourceLine({np.__file__!r}, 5)]
print(SourceFinder().own_frame(frames))
"""
    done = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "python"), "-P", "-c", program],
        env={"PYTHONPATH": ":".join(below)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "/home/user/model.py:3"


def test_a_models_own_package_is_its_own_wherever_it_is_installed(imports: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = installed(tmp_path / "target")
    (folder / "layered_model.py").write_text(MODEL)
    imports.syspath_prepend(folder)
    module: nn.Module = importlib.import_module("layered_model").Model()
    line = SourceLine(str(folder / "layered_model.py"), 7)
    assert SourceFinder(module).own_frame([SourceLine("/home/user/train.py", 3), line]) == line
