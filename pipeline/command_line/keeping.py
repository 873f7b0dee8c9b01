"""Commands about what is kept on the machine, and about the command line itself."""

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from inductor_debug.pipeline import completion
from inductor_debug.pipeline.command_line.app import Format, FormatOption, app
from inductor_debug.pipeline.live import working
from inductor_debug.pipeline.query import cache_command as kept
from inductor_debug.pipeline.query import clean_command as clean
from inductor_debug.pipeline.query.doctor.checks import checks
from inductor_debug.pipeline.query.trust import ask
from inductor_debug.pipeline.terminal import print_json, print_table, say, say_path, say_with, tell, tell_error
from inductor_debug.stages.formatting import counted, human_bytes


class Shell(StrEnum):
    """Whose completion script is printed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command(
    "cache",
    short_help="the results that are kept for later runs",
    help="Show the stages' results that are kept for later runs, or remove some of them.",
)
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
    say_path(str(folder))
    print_table(list(kept.COLUMNS), _with_sizes(rows))
    return 0


@app.command(
    "clean",
    short_help="remove stored runs",
    help="Remove stored runs: clean [FOLDER] [KEY=PATTERN...], with the keys of list, by age and by size. It shows "
    "what it would remove and asks. What a run did not write stays.",
)
def clean_command(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[FOLDER] [KEY=PATTERN...]", help="as of list: verdict=crashed")
    ] = None,
    older_than: Annotated[
        float | None, typer.Option("--older-than", metavar="DAYS", help="that wrote nothing for so many days")
    ] = None,
    larger_than: Annotated[
        str | None, typer.Option("--larger-than", metavar="SIZE", help="whose files are larger, e.g. 1GiB")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="don't ask")] = False,
    output: FormatOption = Format.TABLE,
) -> int:
    wanted = clean.Wanted.of(words or [], older_than, larger_than)
    found = wanted.found()
    if output is Format.JSON:
        print_json(clean.named(found))
    else:
        print_table(list(clean.COLUMNS), _with_sizes(clean.named(found)))
    if not found:
        tell("nothing to remove")
        return 0
    asked = [*(words or []), *(["--older-than", f"{older_than:g}"] if older_than is not None else []),
             *(["--larger-than", larger_than] if larger_than is not None else [])]  # fmt: skip
    ask(
        f"{counted(len(found), 'run')} would be removed.",
        "Remove them?",
        shlex.join(["clean", *asked]),
        yes,
        sure="they are to go",
    )
    tell(clean.remove(wanted, found, tell_error))
    return 0


def _with_sizes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows for a person: what has ``bytes`` in JSON has ``size`` with its unit."""
    return [{**row, "size": human_bytes(row["bytes"])} for row in rows]


@app.command(
    "doctor",
    short_help="does this machine have what runs need?",
    help="Try what runs need on this machine: torch, a C++ compiler, CUDA, libraries, folders, packages; say how to "
    "mend what is not well. Exit code 1 where something is bad.",
)
def doctor_command(output: FormatOption = Format.TABLE) -> int:
    found = []
    with working("trying what runs need", prints=output is Format.TABLE):
        for check in checks():
            found.append(check)
            if output is Format.TABLE:
                say_with(check.state, f"{check.state:<6}  {check.what}: {check.found}")
                if check.mend:
                    say(f"        try: {check.mend}")
    if output is Format.JSON:
        print_json([vars(check) for check in found])
    return 1 if any(check.state == "bad" for check in found) else 0


@app.command(
    "completion",
    short_help="completion script of bash, zsh or fish",
    help='Print the completion script of a shell, for the tab key: eval "$(inductor-debug completion bash)".',
)
def completion_command(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish")]) -> int:
    print(completion.script(shell.value), end="")
    return 0
