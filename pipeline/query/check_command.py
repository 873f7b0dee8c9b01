"""``inductor-debug check``: stored captures against profiles, without running anything again.

Imports torch only for names of operations that neither the captures nor our profiles hold.
"""

import contextlib
import datetime
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inductor_debug.models.errors import DamagedError, RunDirectoryError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.folders import made
from inductor_debug.pipeline.live import tracked
from inductor_debug.pipeline.query.check_profile import Against, Asked, against
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import BreakRecord
from inductor_debug.stages.encoding import encode, write_atomically
from inductor_debug.stages.formatting import describe_breaks, in_lines, in_words
from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.graphs.stored import checked_graph
from inductor_debug.stages.stored_run import made_again

if TYPE_CHECKING:
    import pandas

    from inductor_debug.stages.accelerators.profile import Profile
    from inductor_debug.stages.constrain.tables import LineCost
    from inductor_debug.stages.rules.violations import Violations


def read_graphs(run: Path) -> list[GraphRecord]:
    """The captured graphs of a run; RunDirectoryError where it has none, or they can't be read."""
    folder = StoredFolder(run)
    if not files.GRAPH.stored(folder):
        store.read_summary(run)  # says that it is no run, where it is none
        raise RunDirectoryError(
            f"{visible(str(run))}: holds no {files.GRAPH.folder}*.json, so nothing can be checked; valid: a run with "
            f"the stage capture.\nTry: {made_again(run, 'stages=[capture]')}"
        )
    with _captured_anew(run):
        return [checked_graph(graph, run / name) for name, graph in files.GRAPH.read_all(folder).items()]


def read_breaks(run: Path) -> list[BreakRecord]:
    """The graph breaks of a run; RunDirectoryError where they can't be read."""
    with _captured_anew(run):
        return files.BREAKS.read(StoredFolder(run)) or []


@contextlib.contextmanager
def _captured_anew(run: Path) -> Iterator[None]:
    """A damaged capture's message ends with the command that makes it anew."""
    try:
        yield
    except DamagedError as error:
        raise error.with_parts(hint=made_again(run, "stages=[capture]")) from error


def _valid(found: Against, graphs: Iterable[GraphRecord]) -> "tuple[Profile, str]":
    """The validated profile, and a note where torch had to say whether its operations exist, which takes seconds.

    Raises:
        ConfigurationError: a value, or the name of an operation, is not valid.
    """
    from inductor_debug.stages.accelerators.operation_lists import confirm_names
    from inductor_debug.stages.accelerators.profile import validate_profile

    profile = validate_profile(found.config, {}, base=found.base)
    told = confirm_names(profile, graphs)
    return profile, "\n".join(filter(None, (found.note, told and f"note: {told}")))


@dataclass(frozen=True)
class Judged:
    """What a profile says of captured graphs.

    Attributes:
        violations: all findings.
        table: what they come to by rule.
        message: whether the model fits, what was checked, and what could not be looked at.
        failed: a strict profile is broken, or can't be shown to be kept.
        lines: the source lines that are rejected or whose findings cost most, as the report shows them.
    """

    violations: "Violations"
    table: "pandas.DataFrame"
    message: str
    failed: bool
    lines: "Sequence[LineCost]"


@dataclass(frozen=True)
class Checked:
    """What ``check`` made: the table, the folder it is stored in, and a note for the reader or nothing.

    Attributes:
        failed: a strict profile is broken.
        lines: the source lines that are rejected or whose findings cost most, as the report shows them.
    """

    table: "pandas.DataFrame"
    folder: Path
    note: str = ""
    failed: bool = False
    lines: "Sequence[LineCost]" = ()


def once(run: Path, asked: Asked, out: Path | None) -> Checked:
    """Neither ``--grid`` nor ``--models``: every violation, and what they come to by rule, as the stage stores them."""
    run = store.existing(run)
    found = judge(read_graphs(run), read_breaks(run), against(run, asked))
    folder = _made(out, "check")
    for name, content in ((files.VIOLATIONS.path, found.violations.table), (files.BY_RULE.path, found.table)):
        file = folder / Path(name).name
        write_atomically(file, encode(file.name, content))
    return Checked(found.table, folder, found.message, found.failed, found.lines)


def judge(graphs: Sequence[GraphRecord], breaks: Sequence[BreakRecord], found: Against) -> Judged:
    """Whether captured graphs fit a profile.

    Args:
        graphs: a run's, as :func:`read_graphs` gives them.
        breaks: the same run's, see :func:`read_breaks`.
        found: the profile, from :func:`~pipeline.query.check_profile.against`.

    Raises:
        ConfigurationError: a value of the profile is not valid.
    """
    from inductor_debug.stages.constrain.stage import figures_of, judged, message_of
    from inductor_debug.stages.constrain.tables import by_rule, top_lines
    from inductor_debug.stages.rules.engine import check

    profile, note = _valid(found, graphs)
    violations = check(graphs, profile)
    looked = bool(violations.profile.rules)
    failed, outside = judged(violations, breaks, looked)
    fits = message_of(violations, looked, outside)
    if found.passed_over and looked and not violations.rows:
        fits = in_words(f"The other rules of {violations.profile.name} find nothing.", outside)
    message = in_lines(fits, figures_of(violations) if looked else "")
    failed = failed or bool(found.passed_over and violations.profile.strict)
    nodes = itertools.chain.from_iterable(graph.nodes for graph in graphs)
    code = {str(node.source): node.source.code for node in nodes if node.source}
    lines = top_lines(violations, code)
    table = files.BY_RULE.frame(by_rule(violations, graphs))
    return Judged(violations, table, "\n".join(filter(None, (message, found.unlooked, note))), failed, lines)


def grid(run: Path, asked: Asked, overrides: Sequence[str], out: Path | None) -> Checked:
    """``--grid``: one table and one picture.

    Args:
        run: the run's folder.
        asked: the profile that the user asked for.
        overrides: ``FIELD=VALUES`` each, see :func:`stages.constrain.grid.parse_grid`.
        out: folder for both files; None makes a new one.
    """
    from inductor_debug.stages.constrain.grid import check_grid, draw_grid, parse_grid

    run = store.existing(run)
    graphs = read_graphs(run)
    points, found = parse_grid(overrides), against(run, asked)
    _, note = _valid(found, graphs)
    with contextlib.ExitStack() as entered:
        shown = partial(tracked, what="checking points")
        table = check_grid(graphs, found.config, points, found.base, lambda every: entered.enter_context(shown(every)))
    folder = _made(out, "grid")
    name = found.base.name if found.base else found.config.name
    title = f"{run.name} against {name}: {len(table):,} points of {', '.join(points)}"
    write_atomically(folder / "grid.csv", encode("grid.csv", table))
    write_atomically(folder / "grid.png", draw_grid(table, points, title))
    return Checked(table, folder, "\n".join(filter(None, (found.unlooked, _with_breaks(note, [run])))))


def models(runs: Sequence[Path], asked: Asked, out: Path | None) -> Checked:
    """``--models``: what a chip must support to run all of the runs' models."""
    from inductor_debug.stages.constrain.coverage import coverage

    located = [store.existing(run) for run in runs]
    graphs = {_model_name(run, index): read_graphs(run) for index, run in enumerate(located)}
    found = against(located[0], asked)
    profile, note = _valid(found, itertools.chain.from_iterable(graphs.values()))
    table = coverage(graphs, profile)
    folder = _made(out, "coverage")
    write_atomically(folder / "coverage.csv", encode("coverage.csv", table))
    return Checked(table, folder, "\n".join(filter(None, (found.unlooked, _with_breaks(note, located)))))


def _with_breaks(note: str, runs: Iterable[Path]) -> str:
    """A note with what the graphs of each run do not hold, and so no rule saw, and which run's name can't be read."""
    runs = list(runs)
    damage = [f"note: {row[store.DAMAGE]}" for row in map(store.row, runs) if row[store.DAMAGE]]
    found = [(run, describe_breaks([item.kind for item in read_breaks(run)])) for run in runs]
    told = [
        f"note: {run}: what runs outside the graphs is not counted ({outside})" for run, outside in found if outside
    ]
    return "\n".join(filter(None, (note, *told, *damage)))


def _made(out: Path | None, name: str) -> Path:
    """``out``, or ``outputs/DATE/TIME-name``, made now."""
    now = datetime.datetime.now()
    return made(out or store.OUTPUTS / f"{now:%Y-%m-%d}" / f"{now:%H-%M-%S-%f}-{name}", "--out")


def _model_name(run: Path, index: int) -> str:
    """Model, mode and, to keep two runs of one model apart, the run's place in the list; a custom one's builder too."""
    row = store.row(run)
    if not row["model"]:
        return f"{index}:{run.name}"
    target = store.build_target(run) if row["model"] == "custom" else ""
    return f"{index}:{'-'.join(filter(None, (row['model'], target, row['mode'])))}"
