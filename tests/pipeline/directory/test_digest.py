"""The digest is that of what was found, wherever the packages and the checkout are."""

from pathlib import Path

import pytest

from inductor_debug.pipeline.directory.digest import OWN_MODELS, artifact_digests, canonical, source_place
from inductor_debug.pipeline.directory.rundir import RunDirectory

INPUTS = {"v.csv": ["node", "source"], "g.json": ["name", "source"]}


def stored(folder: Path, file: str, line: int) -> RunDirectory:
    """A run that tells one line twice, as a table does and as a graph does."""
    directory = RunDirectory(folder)
    source = {"file": file, "line": line, "code": f"x = {line}", "function": "forward"}
    directory.store("v.csv", f"node,source\nadd,{file}:{line}\nmul,\n")
    directory.store("g.json", {"nodes": [{"name": "add", "source": source}, {"name": "mul", "source": None}]})
    return directory


@pytest.fixture
def packages(tmp_path: Path) -> list[str]:
    """One file of a package in two places."""
    files = [tmp_path / name / "site" / "vision" / "nets" / "net.py" for name in ("one", "two")]
    for file in files:
        file.parent.mkdir(parents=True)
        for folder in (file.parent, file.parents[1]):
            (folder / "__init__.py").touch()
    return [str(file) for file in files]


def test_where_a_package_is_does_not_matter_and_its_lines_do(tmp_path: Path, packages: list[str]) -> None:
    one, two = (artifact_digests(stored(tmp_path / f"run{i}", file, 7), INPUTS) for i, file in enumerate(packages))
    assert one == two and source_place(packages[0], 7) == ("vision/nets/net.py", 7)
    assert artifact_digests(stored(tmp_path / "other", packages[0], 8), INPUTS) != one


def test_lines_of_our_own_models_do_not_matter_and_those_of_the_user_s_models_do(tmp_path: Path) -> None:
    own = [stored(tmp_path / f"own{line}", str(OWN_MODELS / "bert.py"), line) for line in (10, 20)]
    assert artifact_digests(own[0], INPUTS) == artifact_digests(own[1], INPUTS)
    assert canonical(own[0], INPUTS)[0]["v.csv"][0] == [["node", "add"], ["source", "models/bert.py"]]
    theirs = tmp_path / "repository" / "models"
    mine = stored(tmp_path / "mine", str(theirs / "bert.py"), 10)
    assert artifact_digests(mine, INPUTS) != artifact_digests(own[0], INPUTS)
    assert canonical(mine, INPUTS, theirs) == canonical(own[0], INPUTS)


def test_a_line_of_no_file_stays(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.store("v.csv", "node,source\nadd,outside the graphs\n")
    assert canonical(directory, INPUTS)[0]["v.csv"] == [[["node", "add"], ["source", "outside the graphs"]]]
