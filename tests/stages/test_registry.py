"""Which stages there are: ours, each as it is declared, and those of packages that can be taken."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.directory.summary import build_summary, empty_parts, parts_of
from inductor_debug.pipeline.run.plan import batch_of
from inductor_debug.stages.artifacts.records import Run, StageRecord
from inductor_debug.stages.contract import Stage
from inductor_debug.stages.declaration import Declaration, named
from inductor_debug.stages.registry import build_stage, declared, questions
from inductor_debug.stages.report.sections import ReportSection, sections

Add = Callable[..., None]
CODE = """
from dataclasses import dataclass
from inductor_debug import Declaration, Question, Section

@dataclass
class Options:
    count: int = 1

DECLARATION = Declaration("{name}", "{module}:Added", Options, {more})
"""


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Installs a package of one module that offers a stage."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def add(name: str, more: str = "", *, module: str = "added_stage", code: str = CODE) -> None:
        (tmp_path / f"{module}.py").write_text(code.format(name=name, module=module, more=more))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[inductor_debug.stages]\n{name} = {module}:DECLARATION\n")
        modules.append(module)
        importlib.invalidate_caches()
        declared.cache_clear()

    yield add
    for module in modules:
        sys.modules.pop(module, None)
    declared.cache_clear()


@pytest.mark.parametrize("stage", declared().values(), ids=list(declared()))
def test_what_a_declaration_names_is_there(stage: Declaration) -> None:
    kind = named(stage.stage)
    assert issubclass(kind, Stage) and kind.declaration is stage
    assert build_stage(stage.name, stage.options()).needs == stage.needs
    for section in stage.sections:
        assert isinstance(found := named(section.maker)(), ReportSection) and found.template.is_file()
    assert all(callable(named(question.answer)) for question in stage.questions.values())
    assert set(stage.if_broken) <= set(stage.summary)


def test_ours_are_in_the_order_in_which_they_run_and_claim_nothing_twice() -> None:
    known = [
        "capture",
        "constrain",
        "lower",
        "kerneldiff",
        "bisect",
        "benchmark",
        "profile",
        "guards",
        "minify",
        "report",
    ]
    assert [name for name in declared() if name in known] == known
    claims = [claim for stage in declared().values() for claim in stage.claims()]
    assert len(claims) == len(set(claims))


def test_a_packages_stage_stands_where_it_says(add: Add) -> None:
    add("early", "order=5, timed=True, summary={'early': {'watts': None}}, "
                 "questions={'early': Question('?', 'm:f')}")  # fmt: skip
    assert list(declared())[:2] == ["early", "capture"]
    assert "early" in questions()
    assert batch_of(["early", "capture"], ["X"]) == ["early"]  # a timed one shares no process with the variables of X
    assert "early" not in empty_parts() and empty_parts(["early"])["early"] == {"watts": None}
    told = StageRecord("early", "passed", 1.0, "", {"early": {"watts": 3}})
    summary = build_summary(Run("x"), ["early"], {"early": told}, 1.0, None)
    declared.cache_clear()
    sys.path.remove(sys.path[0])  # the package is gone
    assert "early" not in declared()
    assert parts_of(summary)["early"] == {"watts": 3} and "guards" not in parts_of(summary)


@pytest.mark.parametrize(
    ("name", "more", "code", "told"),
    [
        ("capture", "", CODE, "there is another stage of the name capture"),
        ("added", "summary={'numerics': {}}", CODE, "there is another part of summary.json of the name numerics"),
        ("added", "summary={'verdict': {}}", CODE, "there is another part of summary.json of the name verdict"),
        ("added", "sections=(Section('guards', 'm:C'),)", CODE, "there is another section of the report of the name"),
        (
            "added",
            "questions={'kernels': Question('?', 'm:f')}",
            CODE,
            "there is another question of the name kernels",
        ),
        ("added", "", "import no_such_module_of_anyone", "ModuleNotFoundError"),
        ("added", "", "DECLARATION = 3", "added_stage:DECLARATION is no Declaration of that name"),
        ("added", "", CODE.replace("{name}", "another"), "added_stage:DECLARATION is no Declaration of that name"),
        ("a-b", "", CODE, "added_stage:DECLARATION is no Declaration of that name"),
    ],
)
def test_a_stage_that_cannot_be_taken_is_left_out_with_a_warning(
    add: Add, caplog: pytest.LogCaptureFixture, name: str, more: str, code: str, told: str
) -> None:
    ours = declared()
    add(name, more, code=code)
    assert dict(declared()) == dict(ours)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"the stage {name} of added_stage:DECLARATION (added_stage 1.0) is left out: "
    )
    assert told in record.getMessage()


def test_two_packages_with_one_name_are_both_left_out(add: Add, caplog: pytest.LogCaptureFixture) -> None:
    add("added")
    add("added", module="other_stage")
    assert "added" not in declared()
    assert "several packages offer a stage of that name" in caplog.text
    with pytest.raises(ConfigurationError, match="stages: got 'added'; valid: "):
        build_stage("added", None)


def test_sections_stand_in_the_order_of_the_page() -> None:
    judged = ["emulation", "guards", "numerics", "minified", "bisection", "violations", "benchmark"]
    known = [*judged, "source", "profile", "lowering", "graphs"]
    assert [name for name in sections() if name in known] == known
