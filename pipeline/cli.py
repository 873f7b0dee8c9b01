"""``inductor-debug``: ``run`` is ``python -m pipeline`` from any directory; the rest reads stored runs."""

import os
import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline import completion
from inductor_debug.pipeline import query as analysis
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.summary import parts_of
from inductor_debug.pipeline.query import cache_command as kept
from inductor_debug.pipeline.query import check_command as checks
from inductor_debug.pipeline.query import compare_command as compare
from inductor_debug.pipeline.query import repro_command
from inductor_debug.pipeline.query.rerun_command import minify_overrides, rerun
from inductor_debug.pipeline.run.commands import entry
from inductor_debug.pipeline.run.compiled_by import flat
from inductor_debug.pipeline.streams import steady_streams
from inductor_debug.pipeline.terminal import cell, print_json, print_table, say, tell
from inductor_debug.stages.formatting import counted

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, help=__doc__
)


class Format(StrEnum):
    """How a table is printed."""

    TABLE = "table"
    JSON = "json"


class Shell(StrEnum):
    """Whose completion script is printed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class ProfilesFormat(StrEnum):
    """How the profiles are printed."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


RowsOption = Annotated[int | None, typer.Option("--rows", min=0, help="rows of each table at most, 0 for all")]
ROWS = 20
"""Rows of a table that analyze prints, unless it is told otherwise."""
CELL = 100
"""Characters of a cell that analyze prints, unless it is a path."""
_PACKAGES = re.compile(r"\S*/(?:site|dist)-packages/")

FormatOption = Annotated[Format, typer.Option("--format", help="table, or json for a program to read")]


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. ``run`` and its overrides go to the entry untouched, typer never sees them."""
    with steady_streams():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(arguments: list[str]) -> int:
    if arguments[:1] == ["run"]:
        return entry.main(arguments[1:])
    if arguments[:1] == ["complete"]:  # what the scripts of ``completion`` call
        return completion.main(arguments[1:], app)
    blank = next((place for place, word in enumerate(arguments) if not word.strip()), None)
    if blank is not None:
        after = f" after {arguments[blank - 1]}" if blank else ""
        tell(f"command line: got {arguments[blank]!r}{after}; valid: no blank word.\nTry: inductor-debug --help")
        return entry.EXIT_CONFIGURATION
    asked = arguments.index("--") if arguments[:1] == ["minify"] and "--" in arguments else len(arguments)
    try:
        code = app(arguments[:asked], prog_name="inductor-debug", standalone_mode=False, obj=arguments[asked + 1 :])
    except UserError as error:
        tell(str(error))
        return entry.EXIT_CONFIGURATION
    except OSError as error:
        if error.filename is None:
            raise
        named = os.fsdecode(error.filename2 or error.filename)
        tell(
            f"{named}: {error.strerror}; valid: files that can be read and folders that can be written.\n"
            "Try: another folder, or free what the system says is in the way"
        )
        return entry.EXIT_CONFIGURATION
    except Exception as error:
        if not hasattr(error, "exit_code") or not hasattr(error, "format_message"):
            raise  # not one of the command line parser's own
        commands = ", ".join(command.name or "" for command in app.registered_commands)
        said = " ".join(error.format_message().split())
        tell(f"command line: {said}; valid commands: {commands}.\nTry: inductor-debug --help")
        return entry.EXIT_CONFIGURATION
    return int(code or 0)


@app.command(
    "run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    help="Run the pipeline: inductor-debug run model=bert accel=strict16 (the same as python -m pipeline).",
)
def run_command(context: typer.Context) -> int:
    return entry.main(context.args)


@app.command("list", help="List the stored runs below a folder, oldest first.")
def list_command(
    root: Annotated[Path, typer.Argument(help="folder to look in")] = store.OUTPUTS,
    output: FormatOption = Format.TABLE,
) -> int:
    rows = [store.row(run) for run in store.find_runs(root, lambda told: tell(f"not listed: {told}"))]
    if output is Format.JSON:
        print_json(rows)
        return 0
    print_table(list(store.COLUMNS), rows)
    for row in rows:
        if row[store.DAMAGE]:
            tell(f"damaged: {row[store.DAMAGE]}")
    return 0


@app.command("show", help="Show one stored run: its verdict, its stages and what they found.")
def show_command(
    run: Annotated[Path, typer.Argument(help="the run's folder")], output: FormatOption = Format.TABLE
) -> int:
    summary = store.read_summary(store.locate(run))
    if output is Format.JSON:
        print_json(summary)
        return 0
    about = {**summary["run"], "verdict": summary["verdict"]}
    print_table(["key", "value"], [{"key": key, "value": cell(value)} for key, value in about.items()])
    print_table(["name", "status", "seconds", "message"], summary["stages"])
    facts = [{"compiled by": key, "value": cell(value)} for key, value in flat(summary.get("compiled_by") or {})]
    if facts:
        print_table(["compiled by", "value"], facts)
    for part, found in parts_of(summary).items():
        print_table([part, "value"], [{part: key, "value": cell(value)} for key, value in found.items()])
    if summary.get("repros"):
        columns = list(dict.fromkeys(key for repro in summary["repros"] for key in repro))
        print_table(columns, summary["repros"])
    return 0


@app.command(
    "rerun",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    help="Run a stored run again, in a new directory, with the variables that it had; KEY=VALUE words change its "
    "configuration. It executes what the run names, and asks first.",
)
def rerun_command(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="the run's folder")],
    yes: Annotated[bool, typer.Option("--yes", help="don't ask before what the run names is executed")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="also where versions, device or code are others: what differs is told")
    ] = False,
) -> int:
    return rerun(run, context.args, yes=yes, anyway=anyway)


@app.command(
    "minify",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    help="Look for the smallest script of a stored run's failure, in a new run: minify RUN [KEY=VALUE...] "
    "[-- COMMAND]. COMMAND is given the path of each script that is tried, and says by exit code 0 that it shows.",
)
def minify_command(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="the run's folder")],
    yes: Annotated[bool, typer.Option("--yes", help="don't ask before what the run names is executed")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="also where versions, device or code are others")] = False,
) -> int:
    return rerun(run, [*context.args, *minify_overrides(context.obj)], yes=yes, anyway=anyway, command="minify",
                 words=context.obj or ())  # fmt: skip


@app.command(
    "check",
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
        tell(found.note)
    if output is Format.JSON:
        print_json(rows)
    else:
        print_table(list(found.table.columns), rows)
        if found.lines:
            say("lines that would repay a change most:")
            print_table(
                ["source", "code", "findings", "rules", "cost_bytes", "flops_share"],
                [vars(line) for line in found.lines],
            )
        say(f"stored in {found.folder}")
    return 1 if found.failed else 0


@app.command(
    "analyze", help="Answer a question from a stored run, the newest by default, without running anything again."
)
def analyze_command(
    run: Annotated[Path | None, typer.Argument(help="the run's folder or id; by default the newest")] = None,
    kind: Annotated[str, typer.Option("--type", help=" | ".join(analysis.questions()))] = "summary",
    graph: Annotated[str | None, typer.Option("--graph", help="a graph's id, such as g0.forward")] = None,
    line: Annotated[
        list[str], typer.Option("--line", help="FILE:LINE, FILE, or a part of a line's code; may be repeated")
    ] = [],  # noqa: B006
    kernel: Annotated[
        list[str], typer.Option("--kernel", help="a kernel's name or a part of it; may be repeated")
    ] = [],  # noqa: B006
    node: Annotated[list[str], typer.Option("--node", help="a post-grad node's name; may be repeated")] = [],  # noqa: B006
    rows: RowsOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    stored = analysis.open_run(run or store.newest())
    found = analysis.analyze(stored, kind, analysis.Wanted(graph, line, kernel, node))
    _print_analysis(found, {"run": str(stored.folder), "type": kind}, rows, output)
    return 0


@app.command(
    "compare",
    help="What differs between stored runs: settings, results, kernels, verdicts of tensors. Two runs, or two sweeps, "
    "are a regression gate: exit code 1 where the second is worse than the first beyond noise.",
)
def compare_command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="runs' folders, or sweeps'; accepted first")],
    limits: Annotated[Path | None, typer.Option("--limits", help="a YAML file: how much worse B may be")] = None,
    page: Annotated[Path | None, typer.Option("--page", help="an HTML file to write: all of it, for a browser")] = None,
    rows: RowsOption = None,
    output: FormatOption = Format.TABLE,
) -> int:
    compared = compare.compared(runs, limits)
    if page is not None:
        compare.write(runs, compared, page)
    _print_analysis(compared.found, compared.about, rows, output)
    if compared.reason and output is Format.TABLE:
        say(compared.reason)
    return compared.exit_code


@app.command(
    "repro",
    help="List the scripts that show a run's failures, or a sweep's by failure; print one, run it, tell whose failure "
    "it is, or write a test or a bug report. Exit code of --run: 0 it shows, 1 it does not, 3 it could not run.",
)
def repro_command_(
    run: Annotated[Path, typer.Argument(help="a run's folder, or one that holds runs")],
    name: Annotated[str, typer.Argument(help="path, file name, or start of the fingerprint of a script")] = "",
    execute: Annotated[bool, typer.Option("--run", help="run the script in a fresh process; asks first")] = False,
    owner: Annotated[
        bool,
        typer.Option("--owner", help="run its program through each layer of the compiler; asks first"),
    ] = False,
    export: Annotated[repro_command.Export | None, typer.Option("--export", help="a test, or a bug report")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="file for --export; by default it is printed")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="don't ask before the script is executed")] = False,
    output: FormatOption = Format.TABLE,
) -> int:
    asked = repro_command.Asked(run, name, execute, owner, export, out, yes, output is Format.JSON)
    return repro_command.answer(asked)


def _print_analysis(found: analysis.Analysis, about: dict[str, Any], rows: int | None, output: Format) -> None:
    """``rows`` of each table: by default all in JSON, :data:`ROWS` for a person; 0 for all."""
    if output is Format.JSON:
        tables = {table.name: [{key: row.get(key) for key in table.columns} for row in table.rows[: rows or None]]
                  for table in found.tables}  # fmt: skip
        print_json({**about, "told": found.told, "tables": tables})
        return
    if "run" in about:
        say(f"run: {about['run']}")
    for sentence in found.told:
        say(sentence)
    say()
    for table in found.tables:
        _print_part(table, ROWS if rows is None else rows or len(table.rows))


def _print_part(table: analysis.Table, limit: int) -> None:
    shown = table.rows[:limit]
    stored = f", in {table.file}" if table.file else ""
    left = f", {limit} shown (--rows 0 for all)" if len(table.rows) > limit else ""
    say(f"{table.name} ({len(table.rows)}{left}{stored}):")
    if shown:
        print_table(list(table.columns), [{key: _cut(row.get(key)) for key in table.columns} for row in shown])
    else:
        say("none")
        say()


def _cut(value: Any) -> Any:
    """A cell that fits on a screen: whole paths, sentences and lists of nodes are in the file and in JSON."""
    text = _PACKAGES.sub("", cell(value))
    return text if len(text) <= CELL or ("/" in text and " " not in text) else f"{text[: CELL - 1]}…"


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


@app.command("profiles", help="List the accelerator profiles and their rules, each with its source.")
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


if __name__ == "__main__":
    sys.exit(main())
