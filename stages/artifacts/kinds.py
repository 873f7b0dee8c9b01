"""Kinds of stored files, each with its reader, and tables with their writer. What is not stored is read as None."""

import fnmatch
import functools
import math
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from inductor_debug.models.stored import Column, shaped
from inductor_debug.stages.encoding import jsonable

if TYPE_CHECKING:
    import pandas

Content = TypeVar("Content")
Row = dict[str, Any]


class Readable(Protocol):
    """A run's files, as :class:`stages.contract.Artifacts`."""

    def names(self, prefix: str = "") -> list[str]: ...

    def read_json(self, name: str) -> Any: ...

    def read_table(self, name: str) -> list[dict[str, str]]: ...


@dataclass(frozen=True)
class File:
    """A file, or one for each graph, tensor or kernel.

    Attributes:
        path: relative to the run; ``{graph}`` stands for a part that differs.
    """

    path: str

    def at(self, *parts: str) -> str:
        """The path with its differing parts, in their order."""
        return re.sub(r"\{\w+\}", "{}", self.path).format(*parts)

    @property
    def folder(self) -> str:
        """What all paths start with, up to the last slash before a part that differs; the path's folder without one."""
        return self.path.partition("{")[0].rpartition("/")[0] + "/"

    def is_path(self, name: str) -> bool:
        """Whether a path is this file's, or of one of them."""
        return fnmatch.fnmatchcase(name, re.sub(r"\{\w+\}", "*", self.path))

    def stored(self, artifacts: Readable) -> list[str]:
        """Paths of those that are stored, sorted."""
        return [name for name in artifacts.names(self.path.partition("{")[0]) if self.is_path(name)]


class ReadOnce:
    """Artifacts of which each JSON file is read as a record once. Readers share the records, and must leave them be."""

    def __init__(self, artifacts: Any) -> None:
        self._artifacts = artifacts
        self.kept: dict[tuple[str, str], Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._artifacts, name)


@dataclass(frozen=True)
class Json(File, Generic[Content]):
    """A JSON file.

    Attributes:
        shape: of its content, see :mod:`models.shapes`.
    """

    shape: type[Content]

    def read(self, artifacts: Readable, *parts: str) -> Content | None:
        """Its content; None where it is not stored."""
        try:
            return self._read(artifacts, self.at(*parts))
        except FileNotFoundError:
            return None

    def read_all(self, artifacts: Readable) -> dict[str, Content]:
        """Path → content of all that are stored."""
        return {name: self._read(artifacts, name) for name in self.stored(artifacts)}

    def _read(self, artifacts: Readable, name: str) -> Content:
        kept = artifacts.kept if isinstance(artifacts, ReadOnce) else {}
        if (self.path, name) not in kept:
            kept[self.path, name] = shaped(artifacts.read_json(name), self.shape, Path(name))
        content: Content = kept[self.path, name]
        return content

    def shaped(self, content: Any, *parts: str) -> Content:
        """Plain content as :attr:`shape`; DamagedError where it is of another."""
        return shaped(content, self.shape, Path(self.at(*parts)))


@dataclass(frozen=True)
class Cell:
    """What the cells of a column hold.

    Attributes:
        pattern: of a whole cell. parse: a cell that is not empty, as JSON has it.
        type: of what a record has of it.
    """

    pattern: str
    parse: Callable[[str], Any]
    type: type

    def held(self, cell: str) -> Any:
        """The cell as a record has it."""
        return None if cell == "" and self.type is not str else self.type(self.parse(cell))


_WHOLE, _NUMBER = re.compile(r"-?(0|[1-9]\d{0,39})"), re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][-+]?\d{1,3})?")


def parsed(cell: str | None) -> Any:
    """A cell of any column as JSON has it: NaN and infinities stay text, an empty one is None."""
    if cell is None or cell == "":
        return None
    if cell in ("True", "False"):
        return cell == "True"
    if _WHOLE.fullmatch(cell):
        return int(cell)
    number = float(cell) if _NUMBER.fullmatch(cell) else math.inf
    return number if math.isfinite(number) else cell


TEXT = Cell(r"(?s:.*)", str, str)
WHOLE = Cell(r"(-?\d{1,40})?", int, int)
NUMBER = Cell(r"([-+]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][-+]?\d{1,3})?|nan|inf|-inf)?", parsed, float)
TRUTH = Cell(r"True|False|", lambda cell: cell == "True", bool)
_OF_TYPE = {cell.type: cell for cell in (TEXT, WHOLE, NUMBER, TRUTH)}


@functools.cache
def _cells_of(row: Any) -> dict[str, Cell]:
    """Column → what its cells hold, by a row's dataclass."""
    hints = typing.get_type_hints(row) if row else {}
    return {name: _OF_TYPE[next(iter(typing.get_args(hint)), hint)] for name, hint in hints.items()}


def frame(row: Any, records: Iterable[Any]) -> "pandas.DataFrame":
    """Records as a table with a column for each field of ``row``; whole numbers stay so beside what is not known."""
    import pandas

    known = _cells_of(row)
    cells = [[getattr(record, name) for name in known] for record in records]
    table = pandas.DataFrame(cells, columns=list(known), dtype=object)
    return table.astype({name: float for name, cell in known.items() if cell.type is float})


def shown(record: Any) -> Row:
    """A record as a row of :meth:`Table.read`: empty text is None, NaN and infinities are text."""
    return {name: None if value == "" else jsonable(value) for name, value in vars(record).items()}


@dataclass(frozen=True)
class Table(File):
    """A CSV file.

    Attributes:
        row: a dataclass with the columns that a reader relies on; others may hold anything.
    """

    row: Any = None

    def read(self, artifacts: Readable, *parts: str) -> list[Row] | None:
        """Its rows; None where it is not stored.

        Numbers and truth values are such, empty cells None. A column that says text stays text.
        """
        rows = self.cells(artifacts, *parts)
        if rows is None:
            return None
        return [{name: self._typed(name, cell) for name, cell in row.items()} for row in rows]

    def cells(self, artifacts: Readable, *parts: str) -> list[dict[str, str]] | None:
        """Its rows as they are written, for a page that shows them; None where it is not stored."""
        try:
            return artifacts.read_table(self.at(*parts))
        except FileNotFoundError:
            return None

    def frame(self, records: Iterable[Any]) -> "pandas.DataFrame":
        """What to store of records that have the fields of ``row``."""
        return frame(self.row, records)

    def checks(self) -> dict[str, Column]:
        """What a reader asks of the columns."""
        cells = self._known
        return {column.name: Column(re.compile(cells[column.name].pattern), column.default is MISSING)
                for column in (fields(self.row) if self.row else ())}  # fmt: skip

    @property
    def _known(self) -> dict[str, Cell]:
        return _cells_of(self.row)

    def _typed(self, name: str, cell: str) -> Any:
        known = self._known.get(name)
        return parsed(cell) if known is None or cell == "" else known.parse(cell)


@dataclass(frozen=True)
class RecordTable(Table, Generic[Content]):
    """A table whose readers need no other columns than those of ``row``."""

    row: type[Content]

    def records(self, artifacts: Readable, *parts: str) -> list[Content] | None:
        """Its rows; None where it is not stored. An empty cell is "" in a column of text, else None."""
        rows, known = self.cells(artifacts, *parts), self._known
        if rows is None:
            return None
        return [self.row(**{name: known[name].held(cell) for name, cell in row.items() if name in known})
                for row in rows]  # fmt: skip
