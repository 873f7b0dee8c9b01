"""Lines of a model's source, named so that none can be taken for another and none depends on a library's version."""

import ast
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from inductor_debug.models.compat import prepare_torchvision


@dataclass(frozen=True)
class Line:
    """One line of a function.

    Attributes:
        function: ``package.module:Class.method``.
        code: the line without its indentation.
        occurrence: which of the function's equal lines, the first being 1; None where there is one alone.
    """

    function: str
    code: str
    occurrence: int | None = None


def within(function: str) -> Callable[..., Line]:
    """``within(function)(code, occurrence)`` is a :class:`Line`."""
    return functools.partial(Line, function)


@functools.cache
def place(line: Line) -> str:
    """``file:line`` of a line, in the library that is installed; LookupError where the label fits none, or several."""
    prepare_torchvision()
    module, _, path = line.function.partition(":")
    function = inspect.unwrap(functools.reduce(getattr, path.split("."), importlib.import_module(module)))
    source, first = inspect.getsourcelines(function)
    found = [first + index for index, text in enumerate(source) if text.strip() == line.code]
    if line.occurrence is None and len(found) != 1:
        raise LookupError(f"{line.function} has {len(found)} lines {line.code!r}; a label names one, by its occurrence")
    index = (line.occurrence or 1) - 1
    if index >= len(found):
        raise LookupError(f"{line.function} has {len(found)} lines {line.code!r}, not {index + 1}")
    return f"{inspect.getsourcefile(function)}:{found[index]}"


def places(lines: Iterable[Line]) -> set[str]:
    return {place(line) for line in lines}


@functools.cache
def run_lines(file: str) -> frozenset[int]:
    """Numbers of a file's lines that stand in a function which is no constructor: those that a model runs."""
    functions = [
        node
        for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    spans = [(range(node.lineno, (node.end_lineno or 0) + 1), node.name == "__init__") for node in functions]
    inside, constructors = (
        {line for span, is_one in spans if is_one == made for line in span} for made in (False, True)
    )
    return frozenset(inside - constructors)
