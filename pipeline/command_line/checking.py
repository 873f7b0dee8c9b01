"""Commands about profiles: a stored capture held to one, and the list of them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.command_line.app import Format, FormatOption, app
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.query import check_command as checks
from inductor_debug.pipeline.terminal import print_json, print_table, say, tell_error
from inductor_debug.stages.formatting import counted


class ProfilesFormat(StrEnum):
    """How the profiles are printed."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


@app.command(
    "check",
    short_help="a stored capture against another profile or a grid",
    help="Check a stored capture against a profile or a grid of its values, or a set of models against a chip. Exit "
    "code 1 where the capture breaks a strict profile; --grid and --models explore, and give 0 whatever they find.",
)
def check_command(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN... [accel=NAME] [accel.FIELD=VALUE...]",
            help="runs' folders, a profile instead of the run's own, and fields of the profile",
        ),
    ],
    grid: Annotated[
        list[str],
        typer.Option("--grid", help="FIELD=VALUES: alignment=1:128, max_tensor_bytes=1MiB,2MiB; may be repeated"),
    ] = [],  # noqa: B006
    models: Annotated[bool, typer.Option("--models", help="what a chip must support to run all of the runs")] = False,
    accel: Annotated[str | None, typer.Option("--accel", help="the same as accel=NAME: another profile")] = None,
    config_dir: Annotated[Path | None, typer.Option("--config-dir", help="a folder with accel/NAME.yaml")] = None,
    trusted: Annotated[bool, typer.Option("--trust", help="call the rules that the run itself names")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="folder for the results; by default a new one")] = None,
    output: FormatOption = Format.TABLE,
) -> int:
    folders = [
        word for word in arguments if "=" not in word or Path(word).is_dir()
    ]  # a sweep's may have a = in its name
    runs = [store.existing(Path(word)) for word in folders]
    if (models and grid) or not runs or (not models and len(runs) > 1):
        raise UserError(
            f"check: got {counted(len(runs), 'run')}, {len(grid)} --grid and {'' if models else 'no '}--models; valid: "
            "one run, alone or with --grid, or runs with --models.\nTry: inductor-debug check RUN accel=strict16"
        )
    asked = checks.Asked.of([word for word in arguments if word not in folders], accel, config_dir, trusted)
    if models:
        found = checks.models(runs, asked, out)
    else:
        found = checks.grid(runs[0], asked, grid, out) if grid else checks.once(runs[0], asked, out)
    rows = [{str(key): None if value != value else value for key, value in row.items()}
            for row in found.table.to_dict("records")]  # fmt: skip
    if found.note:
        tell_error(found.note)
    if output is Format.JSON:
        print_json(rows)
    else:
        print_table(list(found.table.columns), rows)
        if found.lines:
            say("lines that are rejected, or whose findings cost most:")
            print_table(
                ["source", "code", "findings", "rules", "cost_bytes", "flops_share"],
                [vars(line) for line in found.lines],
            )
        say(f"stored in {found.folder}")
    return 1 if found.failed else 0


@app.command(
    "profiles",
    short_help="the accelerators and their rules",
    help="List the accelerator profiles and their rules, each with its source.",
)
def profiles_command(
    output: Annotated[
        ProfilesFormat, typer.Option("--format", help="table, json for a program to read, or markdown for docs")
    ] = ProfilesFormat.TABLE,
) -> int:
    from inductor_debug.stages.accelerators import catalogue

    if output is ProfilesFormat.MARKDOWN:
        print(catalogue.markdown(), end="")
    elif output is ProfilesFormat.JSON:
        print_json(catalogue.rows())
    else:
        print_table(list(catalogue.COLUMNS), catalogue.rows())
    return 0
