"""A former name of ours means ours, unless the user has a module of that name."""

import sys
from pathlib import Path

import pytest

from inductor_debug.models.target import full_name


@pytest.mark.parametrize(
    ("file", "ours"),
    [("stages/lower/notes.txt", True), ("stages/lower/adapters.py", False), ("stages/lower/__init__.py", False)],
)
def test_a_folder_without_the_module_is_not_the_users(
    file: str, ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders need no ``__init__.py`` to be importable. One that has it is taken first, wherever it is on the path."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = full_name("stages.lower.adapters.EagerAdapter")
    assert found == (
        "inductor_debug.stages.backends.eager.EagerAdapter" if ours else "stages.lower.adapters.EagerAdapter"
    )
