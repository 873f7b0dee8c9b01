"""Commands about what is kept on the machine, and about the command line itself."""

from enum import StrEnum
from typing import Annotated

import typer

from inductor_debug.pipeline import completion
from inductor_debug.pipeline.command_line.app import Format, FormatOption, app
from inductor_debug.pipeline.query import cache_command as kept
from inductor_debug.pipeline.terminal import print_json, print_table, say, tell


class Shell(StrEnum):
    """Whose completion script is printed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command("cache", help="Show the stages' results that are kept for later runs, or remove some of them.")
def cache_command(
    cache_dir: Annotated[str | None, typer.Option("--cache-dir", help="as runner.cache_dir of the runs")] = None,
    older_than: Annotated[
        float | None, typer.Option("--older-than", metavar="DAYS", help="remove what was not used for so many days")
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="SIZE", help="remove the longest unused beyond this size, e.g. 5GiB"),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> int:
    if older_than is not None or limit is not None:
        tell(kept.prune(cache_dir, older_than, limit))
    folder, rows = kept.rows(cache_dir)
    if output is Format.JSON:
        print_json({"folder": str(folder), "stages": rows})
        return 0
    say(str(folder))
    print_table(list(kept.COLUMNS), rows)
    return 0


@app.command(
    "completion",
    help='Print the completion script of a shell, for the tab key: eval "$(inductor-debug completion bash)".',
)
def completion_command(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish")]) -> int:
    print(completion.script(shell.value), end="")
    return 0
