"""The jobs of two sweeps, matched by their settings. Their numbers change with every value that is swept."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.query.comparison import TECHNICAL, every_setting_of, without_technical
from inductor_debug.pipeline.run.sweep.changes import as_text, telling_apart
from inductor_debug.pipeline.run.sweep.rows import split_override
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import StoredRun

NOT_TYPED = "not typed"
_OF_RUN = ("model", "accel", "backend", "dtype", "device", "mode")


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
    def _stored(self) -> dict[str, Any]:
        return every_setting_of(self.folder)

    @cached_property
    def known(self) -> dict[str, Any]:
        """The settings, with how the run was made."""
        return self._stored | self.settings

    @cached_property
    def settings(self) -> dict[str, Any]:
        """By dotted key; :attr:`told` where no configuration is stored, as of an export."""
        return without_technical(self._stored) or self.told

    @property
    def has_configuration(self) -> bool:
        """Whether all settings are known."""
        return bool(self._stored)

    @cached_property
    def told(self) -> dict[str, Any]:
        """What ``summary.json`` tells of the settings: what ran, and the values that were typed."""
        if self.run is None:
            return {}
        known = {key: getattr(self.run.head.run, key) for key in _OF_RUN}
        return {key: value for key, value in known.items() if value is not None} | self.typed

    def value(self, key: str) -> Any:
        """A setting as it was typed, or as text of the configuration; that it was not typed where none is stored."""
        return self.told.get(key, as_text(self._stored[key]) if key in self._stored else NOT_TYPED)

    @cached_property
    def typed(self) -> dict[str, Any]:
        """The values that were typed for it, by dotted key; those of a job without a result are not looked for."""
        return {} if self.run is None else without_technical(dict(map(split_override, self.run.head.run.overrides)))


def settings_of_both(a: Job, b: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of two jobs, of which the same is known: where one has no configuration, what both tell."""
    if a.has_configuration and b.has_configuration:
        return a.settings, b.settings
    keys = dict.fromkeys([*a.told, *b.told])
    return {key: a.value(key) for key in keys}, {key: b.value(key) for key in keys}


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
        typed: how many pairs are matched by what was typed for them alone.
    """

    keys: list[str]
    pairs: list[tuple[Job, Job]]
    only_a: list[tuple[Job, str]]
    only_b: list[Job]
    typed: int = 0

    def name(self, job: Job) -> str:
        """What tells a job from the others of its sweep: ``accel.alignment=16, dtype=float32``."""
        return ", ".join(f"{key}={as_text(job.known[key])}" for key in self.keys if key in job.known)


def matched(a: Sequence[Job], b: Sequence[Job]) -> Matched:
    """The jobs of A with those of B that have the same settings, of those that tell the jobs of A or of B apart.

    How a job was run hinders no match. Of several jobs with the same settings those are matched first that were run the
    same way, and the rest in their order. Jobs that are left are matched by what was typed for them, as where a file
    that a group's name stands for was edited between the sweeps: what differs is then judged.
    """
    keys = [*dict.fromkeys(key for jobs in (a, b) for key in telling_apart([job.known for job in jobs], TECHNICAL))]
    settings = [key for key in keys if not key.startswith(TECHNICAL)]
    left = {job.folder: job for job in b}
    found: dict[Path, Job] = {}
    typed = [*dict.fromkeys(key for jobs in (a, b) for key in telling_apart([job.typed for job in jobs], TECHNICAL))]
    ways: list[Callable[[Job], str]] = [
        lambda job: _key(job.known, keys), lambda job: _key(job.known, settings), lambda job: _key(job.typed, typed)
    ]  # fmt: skip
    by_settings = 0
    for place, way in enumerate(ways if typed else ways[:2]):
        by_settings = len(found) if place == 2 else by_settings
        waiting: dict[str, list[Job]] = defaultdict(list)
        for job in left.values():
            waiting[way(job)].append(job)
        for job in a:
            same = waiting[way(job)]
            if job.folder not in found and same:
                found[job.folder] = same.pop(0)
                del left[found[job.folder].folder]
    in_a, in_b = (Counter(_key(job.known, settings) for job in jobs) for jobs in (a, b))
    only_a = [(job, _lacking(in_a[key], in_b[key])) for job in a
              if job.folder not in found and (key := _key(job.known, settings))]  # fmt: skip
    pairs = [(job, found[job.folder]) for job in a if job.folder in found]
    return Matched(keys, pairs, only_a, [*left.values()], len(found) - by_settings if typed else 0)


def _lacking(in_a: int, in_b: int) -> str:
    """Why a job of A has none in B, by how many of either have its settings."""
    return f"B has {counted(in_b, 'such job')}, A has {in_a}" if in_b else "B has no such job"


def _key(known: Mapping[str, Any], keys: Iterable[str]) -> str:
    return json.dumps([known.get(key) for key in keys], sort_keys=True)
