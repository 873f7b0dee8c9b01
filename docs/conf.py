"""How Sphinx builds the documentation: ``make docs``.

The source folder is the repository's root, so that links among the pages, README.md and source files are the same on
the site as in the repository.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT)]

import _generate  # noqa: E402 - it lies beside this file

_generate.write(ROOT / "docs/reference")

project = "inductor-debug"
author = "the authors of inductor-debug"
root_doc = "docs/index"
include_patterns = ["docs/**.md", "README.md", "CONTRIBUTING.md"]
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
suppress_warnings = ["toc.empty_glob"]  # a kind of page may have none

html_theme = "furo"
html_title = "inductor-debug"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_root"]
html_show_sphinx = False
html_copy_source = False
