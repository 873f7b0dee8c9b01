"""Commands that run the pipeline."""

from pathlib import Path
from typing import Annotated

import typer

from inductor_debug.pipeline.command_line.app import Format, FormatOption, app
from inductor_debug.pipeline.query.rerun_command import minify_overrides, rerun
from inductor_debug.pipeline.run.commands import entry


@app.command(
    "run",
    short_help="run the pipeline: run model=bert accel=strict16",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    help="Run the pipeline: inductor-debug run model=bert accel=strict16 (the same as python -m pipeline).",
)
def run_command(context: typer.Context) -> int:
    return entry.main(context.args)


@app.command(
    "rerun",
    short_help="run a stored run again, in a new directory",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    help="Run a stored run again, in a new directory, with the variables that it had; KEY=VALUE words change its "
    "configuration. It executes what the run names, and asks first.",
)
def rerun_command(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder or id, or latest")],
    yes: Annotated[bool, typer.Option("--yes", help="don't ask before what the run names is executed")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="also where versions, device or code are others: what differs is told")
    ] = False,
    output: FormatOption = Format.TABLE,
) -> int:
    return rerun(run, context.args, yes=yes, anyway=anyway, as_json=output is Format.JSON)


@app.command(
    "minify",
    short_help="look for the smallest script of a failure",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    help="Look for the smallest script of a stored run's failure, in a new run: minify RUN [KEY=VALUE...] "
    "[-- COMMAND]. COMMAND is given the path of each script that is tried, and says by exit code 0 that it shows.",
)
def minify_command(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder or id, or latest")],
    yes: Annotated[bool, typer.Option("--yes", help="don't ask before what the run names is executed")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="also where versions, device or code are others")] = False,
    output: FormatOption = Format.TABLE,
) -> int:
    return rerun(run, context.args, yes=yes, anyway=anyway, command="minify", own=minify_overrides(context.obj),
                 words=context.obj or (), as_json=output is Format.JSON)  # fmt: skip
