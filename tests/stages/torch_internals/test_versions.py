"""Which torch is warned of."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from inductor_debug.stages.torch_internals.versions import NEWEST, OLDEST, warning_for

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("version", ["2.11.0", "2.15.0+cu132", "2.15.3", "2.9.1", "of my own"])
def test_a_torch_that_is_not_newer_is_used_without_a_word(version: str) -> None:
    assert warning_for(version) is None


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0.dev20261101+cpu", "2.16.0a0+git1234", "3.0.0", "10.0"])
def test_a_newer_torch_is_told_of(version: str) -> None:
    warning = warning_for(version)
    assert warning is not None and f"torch {version} is newer" in warning
    assert "(2.11 to 2.15)" in warning and "pip install 'torch==2.15.*'" in warning


def test_pip_takes_every_torch_from_the_oldest_on() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (torch,) = (item.specifier for item in map(Requirement, listed) if item.name == "torch")
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    assert torch.contains(f"{oldest}.0") and torch.contains(f"{newest}.0") and torch.contains("3.0.0")
    assert not torch.contains(f"{OLDEST[0]}.{OLDEST[1] - 1}.9")
