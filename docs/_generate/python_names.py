"""docs/reference/python.md: the names that users import, each by its docstring."""

import inspect
from typing import Any

import inductor_debug
from _generate import docstrings

HEADER = """# Python

What does `import inductor_debug` offer, and what does each name take?

This page is made of docstrings by `make docs`. The names below are the library; what lies below the packages `models`,
`stages` and `pipeline` may change from one version to the next. Importing the package does not import torch.
"""
KINDS = ("Functions", "Classes", "Errors")


def page() -> str:
    """The whole page; UndescribedError for a name without a docstring."""
    found: dict[str, list[tuple[str, Any]]] = {kind: [] for kind in KINDS}
    for name in sorted(inductor_debug.__all__, key=str.lower):
        value = getattr(inductor_debug, name)
        if not docstrings.summary(value):
            raise docstrings.UndescribedError(f"inductor_debug.{name} has no docstring")
        found[_kind(value)].append((name, value))
    parts = [HEADER]
    for kind, names in found.items():
        rows = ([f"[`{name}`](#{name.lower()})", _first_sentence(value)] for name, value in names)
        parts += [f"## {kind}\n", docstrings.table(("name", "what"), rows)]
        for name, value in names:
            parts += [f"### {name}\n", _directive(name, value)]
    return "\n".join(parts)


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return "Errors" if issubclass(value, Exception) else "Classes"
    return "Functions"


def _first_sentence(value: Any) -> str:
    text = docstrings.summary(value)
    return docstrings.sentence(docstrings.cell(text.partition(". ")[0]))


def _directive(name: str, value: Any) -> str:
    if inspect.isclass(value):
        lines = [f".. autoclass:: inductor_debug.{name}", "   :members:", "   :member-order: bysource"]
    else:
        kind = "autofunction" if inspect.isroutine(value) else "autodata"
        lines = [f".. {kind}:: inductor_debug.{name}", *([] if inspect.isroutine(value) else ["   :no-value:"])]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"
