"""The pages of docs: the generated reference tells all that there is; each page is listed, and says what it is for.

``make docs`` builds the site, and fails for a link or an anchor that leads nowhere.
"""

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _generate import command_line, configuration, python_names, stored_files
from omegaconf import OmegaConf

import inductor_debug
from inductor_debug.pipeline.cli import app
from inductor_debug.pipeline.config import described_keys, docstrings
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import File
from inductor_debug.stages.registry import declared, is_ours

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = ("configuration.md", "files.md", "command-line.md", "python.md")
PAGES = sorted(page for page in DOCS.glob("*/*.md") if page.name not in GENERATED or page.parent.name != "reference")


def dotted(node: Any, prefix: str = "") -> Iterator[str]:
    """Every key of plain data that holds a value or a list, not those of a mapping that is free in its keys."""
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def test_every_key_of_the_configuration_is_on_its_page() -> None:
    page = configuration.page()
    told = set(re.findall(r"^```\{confval\} (\S+)$", page, re.MULTILINE))
    keys = set(dotted(OmegaConf.to_container(OmegaConf.structured(Config()))))  # type: ignore[arg-type]
    for stage in declared().values():
        if is_ours(stage):
            options = OmegaConf.to_container(OmegaConf.structured(stage.options()))
            keys |= set(dotted(options, f"stages.{stage.name}."))  # type: ignore[arg-type]
    assert len(keys) > 100 and "stages.kerneldiff.localize.when" in keys
    assert keys - told == set()
    for file in (ROOT / "conf").glob("*/*.yaml"):
        assert f"| `{file.parent.name}={file.stem}` |" in page, "a choice of a group"


def test_the_keys_that_a_models_file_sets_are_on_the_page_of_the_configuration() -> None:
    page = configuration.page()
    for file in (ROOT / "conf/model").glob("*.yaml"):
        for name in OmegaConf.to_container(OmegaConf.load(file))["build"]:  # type: ignore[call-overload,index]
            assert name == "_target_" or f"| `model.build.{name}` |" in page


def test_a_key_that_nothing_describes_is_an_error_of_the_build() -> None:
    @dataclass
    class Options:
        """Attributes:
        told: what it is.
        """

        told: int = 1
        silent: int = 2

    with pytest.raises(docstrings.UndescribedError, match=r"stages\.new\.silent"):
        [configuration.shown(key) for key in described_keys.keys(Options(), "stages.new.")]


def test_every_file_of_a_run_is_on_its_page_with_the_columns_of_its_table() -> None:
    page = stored_files.page()
    named = [value for value in vars(files).values() if isinstance(value, File)]
    named += files.PROFILE_TABLES.values()
    assert len(named) > 40
    for file in named:
        path = re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), file.path)
        assert f"### `{path}`\n" in page
    sections = dict(re.findall(r"^### `([^`]+)`\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL))
    for path, row in {file.path: file.row for file in named if getattr(file, "row", None)}.items():
        section = sections[re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), path)]
        assert not [one.name for one in dataclasses.fields(row) if f"`{one.name}`" not in section], path


def test_every_command_is_on_its_page_with_its_options() -> None:
    page = command_line.page()
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert {item.name for item in app.registered_commands if not item.hidden} <= set(sections)
    for option in ("--grid TEXT", "--config-dir PATH", "--format table\\|json"):
        assert f"`{option}`" in sections["check"]
    assert "| `--format table\\|json` | `table` |" in sections["list"], "a default"


def test_every_public_name_is_on_the_page_of_the_library() -> None:
    page = python_names.page()
    assert set(re.findall(r":: inductor_debug\.(\w+)$", page, re.MULTILINE)) == set(inductor_debug.__all__)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_a_page_opens_with_what_it_is_for(page: Path) -> None:
    title, opening = re.split(r"\n\s*\n", page.read_text(encoding="utf-8"), maxsplit=2)[:2]
    assert re.fullmatch(r"# .+", title)
    assert re.match(r"[`\w\[*][^\n]*[^\n]", opening) and not opening.startswith(("```", "* "))
    assert re.search(r"[.?:]$|[.?] ", opening.replace("\n", " ")), "a sentence"
    if page.parent.name in ("explanation", "reference"):
        assert re.match(r"[^.]*\?(\s|$)", opening), "a question"


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_opens_with_its_question(name: str) -> None:
    made = {"configuration.md": configuration, "files.md": stored_files, "command-line.md": command_line}
    assert made.get(name, python_names).HEADER.split("\n\n")[1].endswith("?")


def test_every_page_is_listed_on_the_landing_page() -> None:
    listed = set(
        re.findall(r"^- \[[^\]]+\]\(([^)]+)\): .", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    there = {f"{page.parent.name}/{page.name}" for page in PAGES} | {f"reference/{name}" for name in GENERATED}
    assert listed == there | {"../CONTRIBUTING.md"}


@pytest.mark.slow
def test_a_link_to_a_heading_that_is_not_there_fails_the_build(tmp_path: Path) -> None:
    copy = tmp_path / "repository"
    shutil.copytree(
        ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv*", "build", "tests", "outputs")
    )
    page = copy / "docs/explanation/cost.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[gone](benchmark.md#no-such-heading)\n", encoding="utf-8")
    command = ["-m", "sphinx", "-c", "docs", "-b", "html", "-W", "--keep-going", "-n", "-E", "-q", ".", "build/docs"]
    done = subprocess.run([sys.executable, *command], cwd=copy, capture_output=True, text=True)
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert done.returncode == 1 and len(warnings) == 1 and "no-such-heading" in warnings[0], done.stderr
    built = list((copy / "build/docs").rglob("*.html"))
    assert len(built) > len(PAGES) + len(GENERATED)
    asked = [re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)", page.read_text()) for page in built]
    assert not any(asked), "the site is read offline"
