"""docs/reference/files.md: every file of a run, and what is in it."""

import ast
import dataclasses
import inspect
import itertools
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from inductor_debug.models.shapes import Number
from inductor_debug.pipeline.config import docstrings
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import File, Json, Table

HEADER = """# Files of a run

Which files does a run leave, and what does each hold?

This page is made of the declarations by `make docs`. Paths are relative to the run's folder; a part in capitals differs
from file to file. A stage writes below the folder of its name. A cell that is empty, or a `null`, is not known, unless
the column says what it means. A file may hold further keys and columns, on which nothing relies.

Three more files are Hydra's and the runner's: `.hydra/` has the configuration, from which `inductor-debug rerun` runs
again, `run.log` everything that was logged, and `.owner.json` whose directory it is ([runs](runs.md)).
"""
SECTIONS = {
    "": "The run as a whole",
    ".stages": "The run as a whole",
    "repros": "Reproductions",
}
"""Folder → the section that its files are told in; any other folder is that of the stage of its name."""
NOT_STORED = ("in no table", "not a column")
"""What a field's description says that has no column."""
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null", Any: "anything"}


@dataclass(frozen=True)
class Named:
    """A file with the name of its declaration, and the docstring below that."""

    name: str
    file: File
    text: str


def declared_files() -> list[Named]:
    """Every file that ``stages.artifacts.files`` declares, in its order; UndescribedError for one without a word."""
    texts = _attribute_docstrings()
    found = []
    for name, value in vars(files).items():
        if isinstance(value, File):
            found.append(Named(name, value, texts.get(name, "")))
        elif isinstance(value, dict) and not name.startswith("_"):
            found += [Named(name, file, texts.get(name, "")) for file in value.values() if isinstance(file, File)]
    for item in found:
        if not about(item):
            raise docstrings.UndescribedError(f"{item.name} of stages/artifacts/files.py: what is {item.file.path}?")
    return found


def shown_path(file: File) -> str:
    """A path as this page has it: ``lower/GRAPH/kernels.csv``."""
    parts = file.path.replace("}", "{").split("{")
    return "".join(part.upper() if place % 2 else part for place, part in enumerate(parts))


def page() -> str:
    """The whole page."""
    parts, section, records = [HEADER], "", dict[str, type]()
    for item in declared_files():
        folder = item.file.path.rpartition("/")[0].partition("/")[0]
        title = SECTIONS.get(folder, f"The stage {folder}")
        if title != section:
            parts.append(f"## {title}\n")
            section = title
        parts += [f"### `{shown_path(item.file)}`\n", docstrings.sentence(docstrings.markdown(about(item))) + "\n"]
        content = _content(item)
        if content is not None:
            parts.append(content)
        if isinstance(item.file, Json):
            records |= {kind.__name__: kind for kind in _records(item.file.shape)}
    top = {kind.__name__ for kind in map(_top, (item.file for item in declared_files())) if kind is not None}
    parts.append("## Records\n\nWhat is inside the JSON files.\n")
    for name, kind in sorted(records.items()):
        if name not in top:
            text = docstrings.markdown(docstrings.without_see(docstrings.summary(kind)))
            parts += [f"({_anchor(name)})=\n### {name}\n", f"{text}\n", _fields(kind)]
    return "\n".join(parts)


def about(item: Named) -> str:
    """What a file is: the docstring of its declaration, else that of its content without the path it opens with."""
    kind = item.file.row if isinstance(item.file, Table) else _top(item.file)
    own = docstrings.without_see(docstrings.summary(kind)) if kind is not None else ""
    opened, _, rest = own.partition(": ")
    if item.text:
        return docstrings.without_see(item.text)
    if "/" in opened or "." in opened:
        return rest or opened
    return own


def columns(item: Named) -> dict[str, str]:
    """Column → its description; UndescribedError where one that readers rely on has none.

    Where the docstring of the row, or of the file, says to see another class, the columns are that one's.
    """
    assert isinstance(item.file, Table)
    row = item.file.row
    text = item.text or (docstrings.summary(row) if row else "")
    named = [one for one in map(docstrings.resolved, docstrings.SEE.findall(text)) if dataclasses.is_dataclass(one)]
    kind = next((one for one in named if isinstance(one, type)), row)
    if kind is None:
        return {}
    said = docstrings.described(kind)
    missing = [one.name for one in dataclasses.fields(row or kind) if one.name not in said]
    if missing:
        raise docstrings.UndescribedError(
            f"{item.file.path}: {kind.__qualname__} does not describe {', '.join(missing)}"
        )
    return {name: text for name, text in said.items() if not any(words in text for words in NOT_STORED)}


def _content(item: Named) -> str | None:
    if isinstance(item.file, Table):
        found = columns(item)
        rows = [[_names(names), docstrings.sentence(docstrings.cell(text, "empty"))] for names, text in _grouped(found)]
        return docstrings.table(("column", "what"), rows) if rows else None
    if isinstance(item.file, Json):
        kind = _top(item.file)
        listed = typing.get_origin(item.file.shape) is list
        return (("A list; each item has:\n\n" if listed else "") + _fields(kind)) if kind is not None else None
    return None


def _fields(kind: type) -> str:
    """The keys of a record, with their types and what is said of them."""
    said, hints = docstrings.described(kind), typing.get_type_hints(kind)
    rows = [
        [f"`{item.name.rstrip('_')}`", _type(hints[item.name]),
         docstrings.sentence(docstrings.cell(said.get(item.name, "")))]
        for item in dataclasses.fields(kind)
    ]  # fmt: skip
    return docstrings.table(("key", "type", "what"), rows)


def _grouped(found: dict[str, str]) -> Iterator[tuple[list[str], str]]:
    """Neighbours that share a description together."""
    names: list[str] = []
    last = ""
    for name, text in found.items():
        if names and text != last:
            yield names, last
            names = []
        names.append(name)
        last = text
    if names:
        yield names, last


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _type(shape: Any) -> str:
    """A shape in words; a record is a link to its section."""
    origin, parameters = typing.get_origin(shape), typing.get_args(shape)
    if shape == Number:
        return "number"
    if origin in (types.UnionType, typing.Union):
        rest = [one for one in parameters if typing.get_origin(one) is not Literal or float not in parameters]
        return " or ".join(dict.fromkeys(map(_type, rest)))
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in parameters)
    if origin is list:
        return f"list of {_type(parameters[0])}"
    if origin is tuple:
        return f"list of {len(parameters)}"
    if origin is dict:
        return f"mapping to {_type(parameters[1])}"
    if dataclasses.is_dataclass(shape) and isinstance(shape, type):
        return f"[{shape.__name__}](#{_anchor(shape.__name__)})" if shape not in _tops() else shape.__name__
    return _WORDS.get(shape, "mapping")


def _records(shape: Any, seen: frozenset[type] = frozenset()) -> Iterator[type]:
    """Every dataclass within a shape."""
    for one in typing.get_args(shape):
        yield from _records(one, seen)
    if dataclasses.is_dataclass(shape) and isinstance(shape, type) and shape not in seen:
        yield shape
        for hint in typing.get_type_hints(shape).values():
            yield from _records(hint, seen | {shape})


def _top(file: File) -> type | None:
    """The dataclass of a JSON file's content, or of an item where that is a list."""
    if not isinstance(file, Json):
        return None
    shape = file.shape if typing.get_origin(file.shape) is not list else typing.get_args(file.shape)[0]
    return shape if dataclasses.is_dataclass(shape) else None


def _tops() -> set[type]:
    return {kind for value in vars(files).values() if isinstance(value, File) and (kind := _top(value)) is not None}


def _attribute_docstrings() -> dict[str, str]:
    """Name → the text below its assignment in ``stages.artifacts.files``, on one line."""
    body = ast.parse(inspect.getsource(files)).body
    found = {}
    for before, after in itertools.pairwise(body):
        if isinstance(before, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            name = before.targets[0]
            assert isinstance(name, ast.Name)
            found[name.id] = " ".join(str(after.value.value).split())
    return found


def _anchor(name: str) -> str:
    return f"record-{name.lower()}"
