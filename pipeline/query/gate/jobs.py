"""The jobs of two sweeps, matched by their settings. Their numbers change with every value that is swept."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.query.comparison import TECHNICAL, every_setting_of
from inductor_debug.pipeline.run.sweep.changes import telling_apart
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import StoredRun

_OF_RUN = ("model", "dtype", "device", "mode")


@dataclass(frozen=True)
class Job:
    """A run, or a job of a sweep, which may have been killed before it had a result.

    Attributes:
        folder: its folder.
    """

    folder: Path

    @cached_property
    def run(self) -> StoredRun | None:
        """The stored run; None where it has no result."""
        return open_run(self.folder) if StoredFolder(self.folder).has(SUMMARY) else None

    @cached_property
    def every_setting(self) -> dict[str, Any]:
        """By dotted key, with how the run was made."""
        return every_setting_of(self.folder)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """By dotted key; what ``summary.json`` tells of them where no configuration is stored."""
        found = {key: value for key, value in self.every_setting.items() if not key.startswith(TECHNICAL)}
        if found or self.run is None:
            return found
        told = {key: getattr(self.run.head.run, key) for key in _OF_RUN}
        return {key: value for key, value in told.items() if value is not None}


@dataclass(frozen=True)
class Side:
    """A run, or a sweep with its jobs."""

    folder: Path
    jobs: list[Job]
    is_sweep: bool

    @classmethod
    def of(cls, folder: Path) -> "Side":
        """What is in a folder; a folder that holds no run is taken for one, which then says what is wrong."""
        below = [] if StoredFolder(folder).has(SUMMARY) else store.find_runs(folder)
        if below in ([], [folder]):
            return cls(folder, [Job(folder)], False)
        return cls(folder, [Job(run) for run in below], True)


@dataclass(frozen=True)
class Matched:
    """Jobs of two sweeps.

    Attributes:
        keys: the settings that tell the jobs of either sweep apart.
        pairs: of A and of B.
        only_a: jobs of A that none of B is held to, each with why. only_b: jobs of B that are held to none.
    """

    keys: list[str]
    pairs: list[tuple[Job, Job]]
    only_a: list[tuple[Job, str]]
    only_b: list[Job]

    def name(self, job: Job) -> str:
        """What tells a job from the others of its sweep: ``accel.alignment=16, dtype=float32``."""
        known = _known(job)
        return ", ".join(f"{key}={_text(known[key])}" for key in self.keys if key in known)


def matched(a: Sequence[Job], b: Sequence[Job]) -> Matched:
    """The jobs of A with those of B that have the same settings, of those that tell the jobs of A or of B apart.

    How a job was run hinders no match. Of several jobs with the same settings those are matched first that were run the
    same way, and the rest in their order.
    """
    keys = [*dict.fromkeys(key for jobs in (a, b) for key in telling_apart([*map(_known, jobs)], TECHNICAL))]
    settings = [key for key in keys if not key.startswith(TECHNICAL)]
    left = {job.folder: job for job in b}
    found: dict[Path, Job] = {}
    for by in (keys, settings):
        waiting: dict[str, list[Job]] = defaultdict(list)
        for job in left.values():
            waiting[_key(job, by)].append(job)
        for job in a:
            same = waiting[_key(job, by)]
            if job.folder not in found and same:
                found[job.folder] = same.pop(0)
                del left[found[job.folder].folder]
    alike = [Counter(_key(job, settings) for job in jobs) for jobs in (a, b)]
    counts = {job.folder: [count[_key(job, settings)] for count in alike] for job in a if job.folder not in found}
    only_a = [(job, f"B has {counted(counts[job.folder][1], 'such job')}, A has {counts[job.folder][0]}"
               if counts[job.folder][1] else "B has no such job") for job in a if job.folder in counts]  # fmt: skip
    return Matched(keys, [(job, found[job.folder]) for job in a if job.folder in found], only_a, [*left.values()])


def _known(job: Job) -> dict[str, Any]:
    """What is known of a job's settings."""
    return job.every_setting | job.settings


def _key(job: Job, keys: Iterable[str]) -> str:
    known = _known(job)
    return json.dumps([known.get(key) for key in keys], sort_keys=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
