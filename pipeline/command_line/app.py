"""The command line's parser, and the options that several commands take."""

import itertools
import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from inductor_debug.pipeline.loudness import (
    QUIET_FLAGS,
    QUIET_HELP,
    VERBOSE_FLAGS,
    VERBOSE_HELP,
    Loudness,
    ask_for,
    loudness,
)
from inductor_debug.pipeline.terminal import say

ORDER = ("run", "rerun", "minify", "list", "show", "report", "export", "analyze", "compare", "repro", "check",
         "profiles", "dashboard", "doctor", "clean", "cache")  # fmt: skip
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


QuietOption = Annotated[bool, typer.Option(*QUIET_FLAGS, help=QUIET_HELP)]
VerboseOption = Annotated[bool, typer.Option(*VERBOSE_FLAGS, help=VERBOSE_HELP)]
_RUNS = ("rerun", "minify")
"""Commands that make a run, whose console is Hydra's."""


def _print_version(asked: bool) -> None:
    """Ours and torch's, which is not imported for it."""
    if asked:
        say(f"inductor-debug {version('inductor-debug')}, torch {version('torch')}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the versions, and end")
]


@app.callback()
def _options(
    context: typer.Context, quiet: QuietOption = False, verbose: VerboseOption = False, about: VersionOption = False
) -> None:
    ask_for(quiet, verbose)
    if loudness() is Loudness.VERBOSE and context.invoked_subcommand not in _RUNS:
        logging.basicConfig(format="[%(name)s][%(levelname)s] - %(message)s")  # on the standard error
        logging.getLogger("inductor_debug").setLevel(logging.DEBUG)


def own_flags(words: Sequence[str]) -> list[str]:
    """The flags before the command of a command line."""
    return list(itertools.takewhile((*QUIET_FLAGS, *VERBOSE_FLAGS).__contains__, words))


class Format(StrEnum):
    """How a table is printed."""

    TABLE = "table"
    JSON = "json"


RowsOption = Annotated[int | None, typer.Option("--rows", min=0, help="rows of each table at most, 0 for all")]
FormatOption = Annotated[Format, typer.Option("--format", help="table, or json for a program to read")]
