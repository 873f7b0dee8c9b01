"""The command line's parser, and the options that several commands take."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

ORDER = ("run", "rerun", "minify", "list", "show", "report", "export", "analyze", "compare", "repro", "check",
         "profiles", "doctor", "clean", "cache")  # fmt: skip
"""Commands as the help lists them; others follow."""


def in_order(names: Iterable[str]) -> list[str]:
    """Names of commands as the help lists them."""
    return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


class _Ordered(TyperGroup):
    """The commands, in :data:`ORDER`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return in_order(super().list_commands(ctx))


app = typer.Typer(
    cls=_Ordered,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="``inductor-debug``: ``run`` is ``python -m pipeline`` from any directory; the rest reads stored runs.",
)


class Format(StrEnum):
    """How a table is printed."""

    TABLE = "table"
    JSON = "json"


RowsOption = Annotated[int | None, typer.Option("--rows", min=0, help="rows of each table at most, 0 for all")]
FormatOption = Annotated[Format, typer.Option("--format", help="table, or json for a program to read")]
