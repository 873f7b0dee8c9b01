"""docs/reference/python.md: the names that users import, each by its docstring."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints

import inductor_debug
from inductor_debug.pipeline.config import docstrings

HEADER = """# Python

What does `import inductor_debug` offer, and what does each name take?

This page is made of docstrings by `make docs`. The names below are the library; what lies below the packages `models`,
`stages` and `pipeline` may change from one version to the next. Importing the package does not import torch.
"""
KINDS = ("Functions", "What functions return", "Classes", "Errors")


def page() -> str:
    """The whole page; UndescribedError for a name without a docstring."""
    found: dict[str, list[tuple[str, Any]]] = {kind: [] for kind in KINDS}
    for name in sorted(inductor_debug.__all__, key=str.lower):
        value = getattr(inductor_debug, name)
        if not docstrings.summary(value):
            raise docstrings.UndescribedError(f"inductor_debug.{name} has no docstring")
        found[_kind(value)].append((name, value))
    functions = [value for _, value in found["Functions"]]
    found["What functions return"] = sorted({value.__name__: value for value in _results(functions)}.items())
    parts = [HEADER]
    for kind, names in found.items():
        rows = ([f"[`{name}`](#{name.lower()})", _first_sentence(value)] for name, value in names)
        parts += [f"## {kind}\n", docstrings.table(("name", "what"), rows)]
        for name, value in names:
            place = "inductor_debug" if name in inductor_debug.__all__ else value.__module__
            parts += [f"### {name}\n", _directive(f"{place}.{name}", value)]
    return "\n".join(parts)


def _results(functions: Iterable[Any]) -> Iterator[type]:
    """Classes of ours that functions return, which have no name of their own among those that are imported."""
    for function in functions:
        returned = get_type_hints(function).get("return") if inspect.isroutine(function) else None
        if not isinstance(returned, type) or not returned.__module__.startswith("inductor_debug."):
            continue
        if returned.__name__ not in inductor_debug.__all__:
            yield returned


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return "Errors" if issubclass(value, Exception) else "Classes"
    return "Functions"


def _first_sentence(value: Any) -> str:
    text = docstrings.summary(value)
    return docstrings.sentence(docstrings.cell(text.partition(". ")[0]))


def _directive(name: str, value: Any) -> str:
    if inspect.isclass(value):
        lines = [f".. autoclass:: {name}", "   :members:", "   :member-order: bysource"]
    else:
        kind = "autofunction" if inspect.isroutine(value) else "autodata"
        lines = [f".. {kind}:: {name}", *([] if inspect.isroutine(value) else ["   :no-value:"])]
    return "```{eval-rst}\n" + "\n".join(lines) + "\n```\n"
