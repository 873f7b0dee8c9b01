"""Every Python block of README, tutorial, how-to pages and case studies is executed, each in a process of its own.

Those of the explanation are excerpts. Files of a package are written by :mod:`documented_commands`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented_commands import PAGES, ROOT
from markdown_it import MarkdownIt

EXCERPTS = ("docs/explanation", "docs/reference")
SUMMARY = '{"verdict": "passed", "stages": []}'


def snippets() -> list[tuple[str, str]]:
    """Page and code of each block of Python that is to run as it stands."""
    blocks = [(page, token.content) for page in PAGES
              for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
              if token.type == "fence" and token.info.strip() == "python"]  # fmt: skip
    named = [(str(page.relative_to(ROOT)), code) for page, code in blocks if not re.match(r"# [\w/]+\.py\n", code)]
    return [(page, code) for page, code in named if not page.startswith(EXCERPTS)]


SNIPPETS = snippets()


@pytest.mark.parametrize(
    ("page", "code"),
    [pytest.param(*each, marks=[pytest.mark.slow] * each[0].startswith("docs/case-studies")) for each in SNIPPETS],
    ids=[page for page, _ in SNIPPETS],
)
def test_a_snippet_runs(page: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "outputs/ci").mkdir(parents=True)
    (tmp_path / "outputs/ci/summary.json").write_text(SUMMARY)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, timeout=500)  # fmt: skip
    assert done.returncode == 0, done.stderr
