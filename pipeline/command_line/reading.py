"""Commands that read stored runs."""

from pathlib import Path
from typing import Annotated

import typer

from inductor_debug.pipeline import query as analysis
from inductor_debug.pipeline.command_line.app import Format, FormatOption, RowsOption, app
from inductor_debug.pipeline.command_line.printing import print_analysis
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.summary import parts_of
from inductor_debug.pipeline.live import working
from inductor_debug.pipeline.query import compare_command as compare
from inductor_debug.pipeline.query import list_command as listing
from inductor_debug.pipeline.query import repro_command
from inductor_debug.pipeline.query.analyze_command import answered
from inductor_debug.pipeline.query.export import formats
from inductor_debug.pipeline.query.export.bundle import bundle
from inductor_debug.pipeline.run.compiled_by import flat
from inductor_debug.pipeline.terminal import cell, print_json, print_table, print_text, say, say_path, tell, tell_error
from inductor_debug.stages.artifacts.files import REPORT_PAGE


@app.command(
    "list",
    short_help="the stored runs below a folder",
    help="List the stored runs below a folder, oldest first: list verdict=failed model=resnet*,bert. A command that "
    "takes one run takes latest, the one started last.",
)
def list_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FOLDER] [KEY=PATTERN...]", help=f"folder, and of {', '.join(listing.FILTERS)}"),
    ] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="only so many, the newest")] = None,
    output: FormatOption = Format.TABLE,
) -> int:
    rows = listing.rows(listing.Asked.of(words or []), last, lambda told: tell_error(f"not listed: {told}"), tell)
    if output is Format.JSON:
        print_json(rows)
        return 0
    print_table(list(store.COLUMNS), rows)
    for row in rows:
        if row[store.DAMAGE]:
            tell_error(f"damaged: {row[store.DAMAGE]}")
    return 0


@app.command(
    "show",
    short_help="one run: its verdict, stages and figures",
    help="Show one stored run: its verdict, its stages and what they found.",
)
def show_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="the run's folder or id, or latest")],
    output: FormatOption = Format.TABLE,
) -> int:
    summary = store.read_summary(store.locate(run))
    if output is Format.JSON:
        print_json(summary)
        return 0
    about = {**summary["run"], "verdict": summary["verdict"]}
    print_table(["key", "value"], [{"key": key, "value": cell(value)} for key, value in about.items()])
    stages = [{**stage, "message": str(stage["message"] or "").partition("\n")[0]} for stage in summary["stages"]]
    print_table(["name", "status", "seconds", "message"], stages)
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
    "analyze",
    short_help="answer a question from stored runs",
    help="Answer a question from stored runs, the newest by default, without running anything again. Of several, or of "
    "a folder that holds runs, the tables have the rows of all.",
)
def analyze_command(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN...]", help="runs' folders or ids, or a sweep's; the newest")
    ] = None,
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
    found, about = answered(runs or [], kind, analysis.Wanted(graph, line, kernel, node))
    print_analysis(found, about, rows, output)
    return 0


@app.command(
    "compare",
    short_help="what differs, and whether it is worse",
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
    print_analysis(compared.found, compared.about, rows, output)
    if compared.reason and output is Format.TABLE:
        say(compared.reason)
    return compared.exit_code


@app.command(
    "repro",
    short_help="the scripts that show failures; run them",
    help="List the scripts that show a run's failures, or a sweep's by failure; print one, run it, tell whose failure "
    "it is, or write a test or a bug report. Exit code of --run: 0 it shows, 1 it does not, 3 it could not run.",
)
def repro_command_(
    run: Annotated[Path, typer.Argument(help="a run's folder, or one that holds runs")],
    name: Annotated[
        str,
        typer.Argument(help="a script: its path, or the start of its file name or fingerprint"),
    ] = "",
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


@app.command(
    "report",
    short_help="a run as HTML, Markdown, SARIF, JUnit, a trace, …",
    help="A stored run, the newest by default, in a format that people or tools read: html (its path is printed), "
    "json, markdown for an issue, sarif for code review, junit for CI, perfetto, model-explorer. Of a folder with "
    "runs sarif and junit have all.",
)
def report_command(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="the run's folder or id; by default the newest")
    ] = None,
    output: Annotated[formats.Format, typer.Option("--format", help="of the report")] = formats.Format.HTML,
    out: Annotated[
        Path | None, typer.Option("--out", help="file, or for model-explorer a folder; a text is printed without it")
    ] = None,
) -> int:
    folder = run or store.newest()
    name, content = formats.made(folder, output)
    if out is None and output is formats.Format.HTML:
        say_path(str(store.existing(folder) / REPORT_PAGE.path))
    elif out is None and isinstance(content, str):
        print_text(content)
    else:
        for path in formats.write(content, out or Path(name)):
            say_path(str(path))
    return 0


@app.command(
    "export",
    short_help="one file of a run, to send",
    help="One file to send: a zip archive with a run's report, results and reproductions, without the folders and the "
    "name of this machine.",
)
def export_command(
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="the run's folder or id; by default the newest")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="the archive; by default its run's name")] = None,
    output: FormatOption = Format.TABLE,
) -> int:
    stored = analysis.open_run(run or store.newest())
    path = out or Path(f"{stored.folder.resolve().name}.zip")
    with working(f"packing {stored.folder}"):
        formats.write(bundle(stored), path)
    if output is Format.JSON:
        print_json({"run": str(stored.folder), "archive": str(path)})
    else:
        say_path(str(path))
    return 0
