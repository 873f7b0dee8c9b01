"""The documents list what there is: a name that is added has to be told, and one that is gone has to go."""

import re
from pathlib import Path

import pytest

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.accelerators.rule_kinds import KINDS
from inductor_debug.stages.numerics import metrics
from inductor_debug.stages.registry import declared, is_ours

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PRESET = "inductor_"


def choices(group: str) -> set[str]:
    """The names in a row of the README's table of groups, but for a path of a document."""
    (row,) = re.findall(rf"^\| `{group}` \|(.*)\|$", README, re.MULTILINE)
    return {name for text in re.findall(r"`([^`]+)`", row) for name in text.split(", ")}


@pytest.mark.parametrize("group", ["model", "accel", "experiment", "cluster"])
def test_the_readme_lists_the_files_of_a_group(group: str) -> None:
    assert choices(group) == {file.stem for file in (ROOT / "conf" / group).glob("*.yaml")}


def test_the_readme_lists_the_backends() -> None:
    files = {file.stem for file in (ROOT / "conf/backend").glob("*.yaml")}
    assert choices("backend") == {name for name in files if not name.startswith(PRESET)}
    page = (ROOT / "docs/how-to/configure-a-run.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"`backend=inductor_…`\s+with\s+([^.]+)\.", page)
    assert set(re.findall(r"`(\w+)`", listed)) == {name.removeprefix(PRESET) for name in files} - files


def test_the_readme_lists_the_stages() -> None:
    ours = {name for name, stage in declared().items() if stage.stage.startswith("inductor_debug.")}
    assert choices("stages") == ours


def test_each_question_has_a_symptom_in_the_cookbook() -> None:
    page = (ROOT / "docs/how-to/cookbook.md").read_text(encoding="utf-8")
    asked = {name for stage in declared().values() if is_ours(stage) for name in stage.questions}
    assert asked - set(re.findall(r"analyze .*?--type (\w+)", page)) == set()


def test_the_rules_and_the_metrics_are_told() -> None:
    (listed,) = re.findall(r"rule: ([\w,\s]+)\.", Rule.__doc__ or "")
    assert set(re.split(r",\s+", listed)) == set(KINDS), "Rule's docstring (stages/accelerators/config.py)"
    numerics = (ROOT / "docs/explanation/numerics.md").read_text(encoding="utf-8")
    files = {file.stem for file in Path(metrics.__file__).parent.glob("*.py")} - {"__init__"}
    assert not [name for name in sorted(files) if f"`{name}`" not in numerics], "numerics.md tells each metric"
