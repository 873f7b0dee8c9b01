"""How Sphinx builds the documentation: ``make docs``.

The source folder is the repository's root, so that links among the pages, README.md and source files are the same on
the site as in the repository.
"""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT)]

import _generate  # noqa: E402 - it lies beside this file

_generate.write(ROOT / "docs/reference")

project = "inductor-debug"
author = "the authors of inductor-debug"
root_doc = "docs/index"
include_patterns = ["docs/**.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [".*", "build", "conf", "dist", "inductor_debug", "models", "outputs", "pipeline", "stages", "tests"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
highlight_language = "none"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
nitpick_ignore_regex = [("py:.*", ".*")]  # docstrings name private modules and torch's types, which have no page here
toc_object_entries = False
smartquotes = False  # an option's two dashes stay two

html_theme = "furo"
html_title = "inductor-debug"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_root"]
html_show_sphinx = False
html_copy_source = False

KINDS = {"tutorial": "Tutorial", "how-to": "How-to", "reference": "Reference", "explanation": "Explanation",
         "case-studies": "Case studies"}  # fmt: skip
"""Folder of docs → the heading of its pages in the sidebar."""


def add_sidebar(app: Any, docname: str, content: list[str]) -> None:
    """Put the sidebar's tables of contents at the end of the landing page, which reads as a plain file without them."""
    if docname != root_doc:
        return
    pages = {title: sorted((ROOT / "docs" / kind).glob("*.md")) for kind, title in KINDS.items()}
    entries = {title: [f"/docs/{page.parent.name}/{page.stem}" for page in found] for title, found in pages.items()}
    start = [f"{name} </{name}>" for name in ("README", "CHANGELOG") if (ROOT / f"{name}.md").is_file()]
    entries = {"Start": start} | entries
    entries["How-to"].append("/CONTRIBUTING")
    for title, listed in entries.items():
        if listed:
            content[0] += "\n".join(["", "```{toctree}", ":hidden:", f":caption: {title}", *listed, "```", ""])


def setup(app: Any) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", add_sidebar)
