"""The pages of the reference that are made of schemas and docstrings, anew at each build."""

from pathlib import Path

from _generate import command_line, configuration, python_names, stored_files

PAGES = {
    "configuration.md": configuration.page,
    "files.md": stored_files.page,
    "command-line.md": command_line.page,
    "python.md": python_names.page,
}
"""File in docs/reference → what makes its text. Git ignores these files."""


def write(folder: Path) -> None:
    """Write every page; UndescribedError names what no docstring describes.

    Args:
        folder: ``docs/reference``.
    """
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
