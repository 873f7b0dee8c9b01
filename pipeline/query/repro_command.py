"""``inductor-debug repro``: the scripts of stored runs, listed, run, traced to their layer, or handed over."""

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from inductor_debug.models.errors import RunDirectoryError, UserError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.config.imports import arrange_path
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.directory.summary import PASSED
from inductor_debug.pipeline.live import working
from inductor_debug.pipeline.query import open_run, trust
from inductor_debug.pipeline.query.handover.bug_report import bug_report
from inductor_debug.pipeline.query.handover.owner import (
    LIMIT_S,
    Owner,
    Step,
    how_it_ended,
    owner_of,
    sentences,
    through_each,
)
from inductor_debug.pipeline.query.handover.pytest_module import pytest_module
from inductor_debug.pipeline.query.handover.stored import StoredRepro, answers
from inductor_debug.pipeline.run import restoring
from inductor_debug.pipeline.terminal import print_json, print_table, print_text, say, tell, tell_error
from inductor_debug.stages.encoding import write_atomically
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED
from inductor_debug.stages.repro.verify import Ending, ran
from inductor_debug.stages.stored_run import Row, StoredRun

LEAST = 4
"""Digits of a fingerprint that name one at least."""
COLUMNS = ("path", "failure_class", "failure", "fingerprint", "operations", "verified", "owner", "met_in")
GROUPED = ("fingerprint", "failure_class", "failure", "operations", "verified", "owner", "runs", "paths")


class Export(StrEnum):
    """What a reproduction is handed over as."""

    PYTEST = "pytest"
    MARKDOWN = "markdown"


@dataclass(frozen=True)
class Asked:
    """What the command line asks for.

    Attributes:
        folder: a run's, or one that holds runs.
        name: path, file name or start of the fingerprint of the script; empty for none.
        execute: ``--run``. owner: ``--owner``. yes: ``--yes``.
        export: as what it is handed over. out: the file for that.
        as_json: ``--format json``.
    """

    folder: Path
    name: str = ""
    execute: bool = False
    owner: bool = False
    export: Export | None = None
    out: Path | None = None
    yes: bool = False
    as_json: bool = False


def answer(asked: Asked) -> int:
    """Do what is asked, and print it.

    Returns:
        0, or with ``--run`` the script's own exit code: 0 it shows, 1 it does not, 3 it could not run.

    Raises:
        UserError: options that do not go together, no such script, or the answer that nothing is to be run.
        RunDirectoryError: it is no run, or a damaged one.
    """
    _check(asked)
    found, one_run = repros_of(asked.folder)
    acts = asked.execute or asked.owner or asked.export is not None
    picked = chosen(found, asked) if asked.name or acts else found[0] if len(found) == 1 else None
    if picked is None or not acts:
        _show(asked, found, picked, one_run)
        return 0
    if picked.decides:
        raise UserError(
            f"the search asked a command, and the script alone can't tell whether {visible(picked.name)} shows it",
            key="repro", valid="to print the script, or to run the command on it", hint=visible(picked.decides),
        )  # fmt: skip
    if asked.execute:
        return _run(picked, asked)
    owner = owner_of(picked, _steps(picked, asked) if asked.owner else ())
    if asked.export is None:
        _print_owner(owner, picked, asked)
    else:
        _export(picked, owner, asked)
    return 0


def _check(asked: Asked) -> None:
    for wrong, got, valid, hint in (
        (asked.execute and (asked.owner or asked.export is not None), "--run with another", "one of them",
         "inductor-debug repro RUN NAME --run"),
        (asked.owner and asked.export is Export.PYTEST, "--owner with --export pytest", "it alone, or with markdown",
         "inductor-debug repro RUN NAME --owner --export markdown"),
        (asked.out is not None and asked.export is None, "--out without --export", "--export with it",
         "inductor-debug repro RUN NAME --export pytest --out test_failure.py"),
    ):  # fmt: skip
        if wrong:
            raise UserError(f"got {got}", key="repro", valid=valid, hint=hint)


def repros_of(folder: Path) -> tuple[list[StoredRepro], bool]:
    """The scripts of a run, or of every run below a folder; True where the folder is a run itself.

    A run below that left no result, or a damaged one, is told of and left out.
    """
    found = store.existing(folder)
    if StoredFolder(found).has(SUMMARY):
        return _of(open_run(found)), True
    repros: list[StoredRepro] = []
    below = store.find_runs(found, lambda told: tell_error(f"not listed: {told}"))
    if below in ([], [found]):
        store.read_summary(found)  # says why it is no run
    for run in below:
        try:
            repros += _of(open_run(run))
        except RunDirectoryError as error:
            tell_error(f"left out: {_first_line(error)}")
    return repros, False


def _first_line(error: UserError) -> str:
    """What is wrong, without what to type next."""
    return str(error).partition("\n")[0]


def _of(run: StoredRun) -> list[StoredRepro]:
    return [StoredRepro(run, record) for record in run.head.repros or []]


def chosen(found: Sequence[StoredRepro], asked: Asked) -> StoredRepro:
    """The script that a name picks, or the only one.

    Of several with one fingerprint it is a verified one before others, and the one of the fewest operations.

    Raises:
        UserError: none, or several of different failures.
    """
    if asked.name:
        named = [
            item
            for item in found
            if asked.name in (item.record.path, item.name, item.name.removesuffix(".py"), item.found_in)
        ]
        if not named:
            named = [item for item in found if item.name.startswith(asked.name)]
        if not named and len(asked.name) >= LEAST:
            named = [item for item in found if item.record.fingerprint.startswith(asked.name.lower())]
    else:
        named = list(found)
    same = {item.record.fingerprint or item.found_in for item in named}
    if len(named) == 1 or (len(same) == 1 and asked.name):
        return min(named, key=_rank)
    shown = visible(str(asked.folder))
    if not found:
        raise UserError(f"no script was left there{_why_none(asked.folder)}", key=shown,
                        valid="a run with reproductions", hint="inductor-debug list verdict=failed")  # fmt: skip
    several = f"which {len(named)} scripts have" if named else "which no script has"
    got = f"{asked.name!r}, {several}" if asked.name else "no name"
    valid = ", ".join(dict.fromkeys(visible(item.found_in if asked.name and named else item.name)
                                    for item in named or found))  # fmt: skip
    raise UserError(f"got {visible(got)}", key="NAME", valid=valid, hint=f"inductor-debug repro {shown}")


def _why_none(folder: Path) -> str:
    """What a run's stages say, where one run alone was asked for and none of its stages left a script."""
    found = store.existing(folder)
    if not StoredFolder(found).has(SUMMARY):
        return ""
    stages = open_run(found).head.stages
    ended = "; ".join(f"{stage.name} {stage.status}" for stage in stages if stage.status != PASSED)
    return f": {ended or 'each stage passed'}"


def _rank(item: StoredRepro) -> tuple[bool, int]:
    return not item.record.verified, item.record.nodes


def listed(found: Sequence[StoredRepro]) -> list[Row]:
    """One row a script."""
    return [{"path": item.record.path, **_facts(item), "met_in": item.record.met_in} for item in found]


def grouped(found: Sequence[StoredRepro]) -> list[Row]:
    """One row a failure: scripts of one fingerprint; a script without one has a row of its own."""
    groups: dict[str, list[StoredRepro]] = {}
    for item in found:
        groups.setdefault(item.record.fingerprint or item.found_in, []).append(item)
    rows = []
    for items in groups.values():
        runs = {item.run.folder for item in items}
        facts = _facts(min(items, key=_rank))
        rows.append({**facts, "runs": len(runs), "paths": [str(item.run.folder / item.record.path) for item in items]})
    return rows


def _facts(item: StoredRepro) -> Row:
    record = item.record
    try:
        owner = str(owner_of(item))
    except RunDirectoryError as error:
        tell_error(_first_line(error))
        owner = None
    return {"failure_class": record.failure_class, "failure": record.failure or None,
            "fingerprint": record.fingerprint or None, "operations": record.nodes, "verified": record.verified,
            "owner": owner}  # fmt: skip


def _show(asked: Asked, found: Sequence[StoredRepro], picked: StoredRepro | None, one_run: bool) -> None:
    """The table, unless a name picks a script, and the script if there is one to show."""
    if asked.as_json:
        shown = found if picked is None else [picked]
        rows = listed(shown) if one_run or picked is not None else grouped(shown)
        print_json([row | {"script": picked.text} for row in rows] if picked is not None else rows)
        return
    if not asked.name:
        columns, rows = (COLUMNS, listed(found)) if one_run else (GROUPED, grouped(found))
        print_table(columns, rows)
        if not found:
            say(f"no script was left there{_why_none(asked.folder)}")
    if picked is not None:
        _print_text(picked.text)


def _print_text(text: str) -> None:
    """Lines as they are, however wide: a script is there to be copied."""
    for line in text.splitlines():
        print_text(f"{visible(line)}\n")


def _executing(item: StoredRepro, asked: Asked, what: str) -> AbstractContextManager[list[str]]:
    """Ask before a stored script is executed; then with the variables that its run had, while this is open."""
    packages = ", ".join(visible(name) for name in item.packages)
    also = f", and imports {packages}" if packages else ""
    given = {"--export": asked.export, "--out": asked.out, "--format": "json" if asked.as_json else None}
    further = [str(word) for pair in given.items() if pair[1] is not None for word in pair]
    command = visible(shlex.join(["repro", str(asked.folder), *filter(None, [asked.name]), what, *further]))
    lines = counted(len(item.text.splitlines()), "line")
    where = visible(str(item.run.folder / item.record.path))
    trust.ask(f"{where}: executes this script ({lines}){also}.", "Run it?", command, asked.yes)
    arrange_path()
    return restoring.restored(item.run.head.compiled_by)


def _run(item: StoredRepro, asked: Asked) -> int:
    with _executing(item, asked, "--run"), working(f"running {item.name}"):
        ending = ran(item.script(), timeout_s=LIMIT_S)
    if asked.as_json:
        print_json({"path": item.record.path, "exit_code": _code(ending), "output": ending.output})
    else:
        _print_text(ending.output)
    if _code(ending) != ending.code:
        tell_error(how_it_ended(ending))
    return _code(ending)


def _code(ending: Ending) -> int:
    """The script's exit code, where it is an answer: Python's own exit code 1 is none."""
    if ending.code == NOT_REPRODUCED and answers(ending.output):
        return NOT_REPRODUCED
    return REPRODUCED if ending.code == REPRODUCED else COULD_NOT_RUN


def _steps(item: StoredRepro, asked: Asked) -> list[Step]:
    if item.is_violation:
        return []  # a rule's: no compiler to run it through
    with _executing(item, asked, "--owner"), working("running it", tell) as told:
        return through_each(item, told)


def _print_owner(owner: Owner, item: StoredRepro, asked: Asked) -> None:
    steps = [{"backend": step.backend, "adds": step.layer, "shows": step.shows, "says": step.said}
             for step in owner.steps]  # fmt: skip
    if asked.as_json:
        print_json({"path": item.record.path, "owner": owner.layer, "established": owner.established,
                    "because": list(owner.because), "ruled_out": dict(owner.ruled_out), "open": dict(owner.open),
                    "steps": steps})  # fmt: skip
        return
    if steps:
        print_table(("backend", "adds", "shows", "says"), steps)
    say(f"for {owner}{': ' if owner.because else ''}{'; '.join(owner.because)}")
    for sentence in sentences(owner.ruled_out):
        say(f"ruled out: {sentence}")
    for sentence in sentences(owner.open):
        say(f"not known: {sentence}")


def _export(item: StoredRepro, owner: Owner, asked: Asked) -> None:
    data = item.data if asked.out is None or not item.data else f"{asked.out.stem}{Path(item.data).suffix}"
    text = pytest_module(item, data) if asked.export is Export.PYTEST else bug_report(item, owner, data)
    if asked.out is None and asked.as_json:
        print_json({"path": item.record.path, "text": text, "reads": data or None})
        return
    if asked.out is None:
        _print_text(text)
        if data:
            tell(f"it reads {data} beside it: --out FILE writes both")
        return
    files = {asked.out: text.encode()} | ({asked.out.with_name(data): item.numbers()} if data else {})
    there = next((path for path in files if path.exists()), None)
    if there is not None:
        raise UserError(f"{there} is there", key="--out", valid="a file that is not", hint="--out another.py")
    for path, content in files.items():
        write_atomically(path, content)
        if not asked.as_json:
            say(f"written to {path}")
    if asked.as_json:
        print_json({"path": item.record.path, "written": [*map(str, files)]})
