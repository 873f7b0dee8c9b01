"""Holds a result to an earlier one: two runs, or two sweeps job by job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.query.gate.case import case_differences, hold_case, measure_differences, told
from inductor_debug.pipeline.query.gate.fit import hold_fit
from inductor_debug.pipeline.query.gate.jobs import Job, Matched, Side, matched, settings_of_both
from inductor_debug.pipeline.query.gate.judgement import Judgement, Outcome, Scales
from inductor_debug.pipeline.query.gate.limits import Limits
from inductor_debug.pipeline.query.gate.numbers import hold_numbers
from inductor_debug.pipeline.query.gate.results import hold_compilation, hold_statuses
from inductor_debug.pipeline.query.gate.times import hold_times
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import Row, StoredRun, Table

COLUMNS = ("what", "A", "B", "change", "limit")
NO_RESULT = "no result"


@dataclass
class Gate:
    """How B stands to A.

    Attributes:
        limits: that were applied.
        told: what a reader must know first, a sentence each.
        runs: those of A and of B that have a result, for the comparison beside it.
        rows: by job what is not as it was; one run has no job's name.
        of_runs: whether A and B are runs, and ``runs`` are these two.
    """

    limits: Limits
    told: list[str]
    runs: list[StoredRun]
    rows: list[tuple[str, Judgement]] = field(default_factory=list)
    of_runs: bool = False

    @property
    def failing(self) -> list[Judgement]:
        """What makes the exit code 1."""
        return [row for _, row in self.rows if row.fails]

    @property
    def exit_code(self) -> int:
        return 1 if self.failing else 0

    @property
    def reason(self) -> str:
        """Why the exit code is what it is, in a sentence; the one thing that fails stands in it."""
        counts = {outcome: sum(row.outcome is outcome for _, row in self.rows) for outcome in Outcome}
        unknown = counts[Outcome.NOT_ESTABLISHED]
        failing = sum(row.outcome is Outcome.NOT_ESTABLISHED for row in self.failing)
        if counts[Outcome.WORSE]:
            verdict = "B is worse than A"
        else:
            verdict = "B is not shown to be as good as A" if failing else "B is no worse than A beyond the limits"
        fail = f", of which {failing} must be known" if failing else ""
        only = f": {self.failing[0].what}: {self.failing[0].change}" if len(self.failing) == 1 else ""
        return (
            f"{verdict}: {counts[Outcome.WORSE]} worse, {counts[Outcome.BETTER]} better, "
            f"{unknown} not established{fail} (exit code {self.exit_code}){only}"
        )

    def tables(self) -> list[Table]:
        """``worse``, ``better`` and ``not_established``; of sweeps the job comes first."""
        jobs = any(job for job, _ in self.rows)
        columns = ("job", *COLUMNS) if jobs else COLUMNS
        return [
            Table(outcome.value, (*columns, "fails") if outcome is Outcome.NOT_ESTABLISHED else columns,
                  [_row(job, row) for job, row in self.rows if row.outcome is outcome])
            for outcome in Outcome
        ]  # fmt: skip


def gate_of(folders: Sequence[Path], limits: Limits) -> Gate | None:
    """B held to A, where the folders are two runs or two sweeps; None for anything else.

    Raises:
        RunDirectoryError: a run has no result.
        DamagedError: a file of one can't be read.
    """
    if len(folders) != 2:
        return None
    a, b = map(Side.of, folders)
    if a.is_sweep != b.is_sweep:
        return None
    return _of_sweeps(a, b, limits) if a.is_sweep else _of_runs(a.jobs[0], b.jobs[0], limits)


def _of_runs(a: Job, b: Job, limits: Limits) -> Gate:
    runs = [open_run(job.folder) for job in (a, b)]
    head = [f"A, the baseline, is {run_id(a.folder)}. B, which is compared with it, is {run_id(b.folder)}."]
    gate = Gate(limits, [*head, *_about([(a, b)]), *_left_out(limits)], runs, of_runs=True)
    gate.rows += [("", row) for row in _held(runs[0], runs[1], *settings_of_both(a, b), limits)]
    return gate


def _of_sweeps(a: Side, b: Side, limits: Limits) -> Gate:
    found = matched(a.jobs, b.jobs)
    both = sum(one.run is not None and other.run is not None for one, other in found.pairs)
    head = [
        f"A is {run_id(a.folder)} of {counted(len(a.jobs), 'job')}, B is {run_id(b.folder)} of "
        f"{counted(len(b.jobs), 'job')}: {counted(both, 'job')} of B held to A's with the same "
        f"{', '.join(found.keys) or 'settings'}"
        + (f", or by what was typed alone ({counted(found.typed, 'job')})" if found.typed else "")
    ]
    head += [f"only in B, and held to nothing: {found.name(job) or run_id(job.folder)}" for job in found.only_b]
    runs = [job.run for side in (a, b) for job in side.jobs if job.run is not None]
    gate = Gate(limits, [*head, *_about(found.pairs), *_left_out(limits)], runs)
    for job, why in found.only_a:
        gate.rows.append((_named(found, job), _missing(job, None, why)))
    for one, other in found.pairs:
        name = _named(found, one)
        if one.run is None or other.run is None:
            gate.rows.append((name, _missing(one, other, "B's has no result: it was killed, rejected, or runs still")))
        else:
            rows = _held(one.run, other.run, *settings_of_both(one, other), limits)
            gate.rows += [(name, row) for row in rows]
    if not any(job.run for job in a.jobs):
        nothing = Judgement("jobs", NO_RESULT, None, "no job of A has a result", "", Outcome.NOT_ESTABLISHED, True)
        gate.rows.append(("all", nothing))
    return gate


def _held(
    a: StoredRun, b: StoredRun, before: Mapping[str, Any], now: Mapping[str, Any], limits: Limits
) -> list[Judgement]:
    if _are_one(a, b):
        ids, why = (
            [run_id(run.folder) for run in (a, b)],
            "A and B are one run, or copies of it: nothing new was compared",
        )
        return [Judgement("run", ids[0], ids[1], why, "", Outcome.NOT_ESTABLISHED, True)]
    scales = Scales(limits)
    same = hold_case(scales, before, now)
    hold_statuses(scales, a, b)
    hold_fit(scales, a, b)
    hold_numbers(scales, a, b)
    hold_compilation(scales, a, b)
    hold_times(scales, a, b, same_case=same)
    return scales.rows


def _are_one(a: StoredRun, b: StoredRun) -> bool:
    """Whether both are the same run, or one is a copy of the other: a gate would pass for ever."""
    copied = a.head.run.identity != "" and a.head.run.identity == b.head.run.identity
    return copied or a.folder.resolve() == b.folder.resolve()


def _missing(a: Job, b: Job | None, why: str) -> Judgement:
    """The row of a job that has no result in B; where it has none in A either, nothing is held."""
    if a.run is None:
        now = None if b is None or b.run is None else b.run.head.verdict
        return Judgement("job", NO_RESULT, now, "A's has no result", "", Outcome.NOT_ESTABLISHED, False)
    now = None if b is None else NO_RESULT
    return Judgement("job", a.run.head.verdict, now, why, "", Outcome.WORSE, True)


def _named(found: Matched, job: Job) -> str:
    return found.name(job) or job.folder.name


def _about(pairs: Sequence[tuple[Job, Job]]) -> list[str]:
    """What differs in the settings, but for the backend's: said once for all jobs."""
    cases: dict[str, None] = {}
    measures: dict[str, None] = {}
    cached: dict[str, None] = {}
    typed: dict[str, None] = {}
    for a, b in pairs:
        sides = settings_of_both(a, b)
        cases |= {told([key], *sides): None for key in case_differences(*sides)}
        measures |= {told([key], *sides): None for key in measure_differences(*sides)}
        typed |= {side: None for side, job in (("A", a), ("B", b)) if not job.has_configuration}
        cached |= {stage.name: None for stage in (b.run.head.stages if b.run else ()) if stage.cached}
    sentences = {
        "not the same case, so that a result of one can't be held to the other's: ": cases,
        "held by other measures: ": measures,
        "B's from the cache, and not measured anew: ": cached,
        "no configuration is stored, so that settings are what summary.json tells and what was typed, of ": typed,
    }
    return [f"{words}{', '.join(found)}" for words, found in sentences.items() if found]


def _left_out(limits: Limits) -> list[str]:
    return [f"not judged, as the limits say: {', '.join(limits.left_out)}"] if limits.left_out else []


def _row(job: str, row: Judgement) -> Row:
    shown = {"what": row.what, "A": row.a, "B": row.b, "change": row.change, "limit": row.limit, "fails": row.fails}
    return {"job": job, **{key: jsonable(value) for key, value in shown.items()}}
