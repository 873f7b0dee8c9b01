"""A worker's use of the cache: which stages need not run, what a stage is given, and what it leaves for later runs."""

import dataclasses
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from inductor_debug.models.shapes import reader
from inductor_debug.models.visible import is_secret
from inductor_debug.pipeline.cache.folders import VARIABLES
from inductor_debug.pipeline.cache.key import clock_of, content_of, differing, key_of, own_source, parts_of
from inductor_debug.pipeline.cache.seen import (
    Seen,
    content_of_variable,
    imported_packages,
    installed_names,
    location_of,
    versions_of,
)
from inductor_debug.pipeline.cache.store import Cache, Entry, entry_of, file_digests, record_of
from inductor_debug.pipeline.cache.turns import Turns
from inductor_debug.pipeline.directory.records import TorchFound
from inductor_debug.pipeline.directory.rundir import RunDirectory, run_id
from inductor_debug.pipeline.directory.summary import SKIPPED
from inductor_debug.pipeline.run import compiled_by
from inductor_debug.pipeline.run.plan import Plan
from inductor_debug.stages.artifacts.compiled_by import CompiledBy
from inductor_debug.stages.artifacts.files import REPRO
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.registry import declared

logger = logging.getLogger(__name__)

_ALIKE = 8
"""Parts in which a kept result may differ and still be worth naming."""
ALSO = ("LD_PRELOAD", "LD_LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH",
        "PYTHONOPTIMIZE")  # fmt: skip
"""Variables that change which libraries are loaded, or what a compiler or Python makes of the same source."""
_WEIGHTS = re.compile("^(HF_|TRANSFORMERS_|HUGGINGFACE_)|^TORCH_HOME$")
"""Variables by which packages find weights: a package's own look-ups are not noted."""
_SHOWN = 4
"""Parts that differ which a line of the log names."""


@dataclass(frozen=True)
class MadeBy:
    """What a worker found of itself, for the summary of a run in which nothing needs torch.

    Attributes:
        compiled_by: what compiled the stage's result.
        devices: what torch found.
    """

    compiled_by: CompiledBy
    devices: TorchFound | None = None

    def instead_of(self, told: CompiledBy) -> CompiledBy:
        """What is known of a run, with what only a worker that needs torch could tell of itself."""
        names = ("model", "device", "settings", "options", "options_before")
        return dataclasses.replace(told, **{name: getattr(self.compiled_by, name) for name in names})


class Reuse:
    """The results that a worker need not make, and those that it keeps.

    Args:
        plan: of the run; with ``cache`` None nothing is looked up and nothing kept.
        directory: of the run.
        environment: this process's variables; those of ``plan.reproduction`` count for the stages that get them,
            whichever process asks.
        tell: called with a stage's name and why its result is not there.
        watching: note what is taken from now on, so that results can be kept.
        path: where modules are looked for, in the place of ``sys.path``.
        waiting: called with a text and True where another job of the sweep makes a result that is missing here, and
            with False once it has; None looks without waiting.
    """

    def __init__(
        self,
        plan: Plan,
        directory: RunDirectory,
        environment: Mapping[str, str],
        tell: Callable[[str, str], None],
        *,
        watching: bool = True,
        path: list[str] | None = None,
        waiting: Callable[[str, bool], None] | None = None,
    ) -> None:
        self.plan, self.directory, self.environment, self.tell = plan, directory, environment, tell
        self.cache = None if plan.cache is None else Cache(Path(plan.cache))
        self.hits: dict[str, tuple[Path, Entry]] = {}
        self._parts: dict[str, dict[str, Any]] = {}
        self._keys: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._given: dict[str, Entry] = {}
        self._before: dict[str, StageRecord] = {}
        self._path = path
        self._waiting = waiting
        self._turns = Turns(self.cache.root) if self.cache is not None and plan.in_sweep and waiting else None
        if self.cache is not None and watching:
            apart = [environment[name] for name in VARIABLES if name in environment]
            self._seen = Seen([str(directory.path), str(self.cache.root), *apart])
            self._installed = installed_names()

    def look(self, remaining: Sequence[str]) -> None:
        """Find the results of remaining stages that are there already, and say of the others why not."""
        if self.cache is None or self.plan.described is None:
            return
        known, source = self.directory.stage_records(), own_source()
        self._places.clear()
        self._before = known
        self._keys = {name: record.key for name, record in known.items()}
        for name in remaining:
            declaration = self._declaration(name)
            if declaration is None:
                continue
            followed = {other: self._keys.get(other, "") for other in declaration.follows if other in self.plan.stages}
            if any(not key for key in followed.values()):
                continue
            parts = parts_of(declaration, self.plan.stages[name], self.plan.settings, followed,
                             self.plan.described.versions, self.plan.described.machine,
                             self._variables(declaration), source)  # fmt: skip
            self._parts[name], self._keys[name] = parts, key_of(parts)
            found, why = self._found(name)
            if found is None and self._turn(name, remaining):
                found, why = self._found(name)
            if found is not None:
                self.release(name)
                self.hits[name] = found
            elif why:
                self.tell(name, f"not in the cache: {why}")

    def restored(self, name: str, records: Mapping[str, StageRecord]) -> tuple[StageRecord, Entry] | None:
        """The record of a stage that need not run, after its files were put into the run's directory."""
        if self.cache is None or name not in self.hits or self.key(name, records) == "":
            return None
        path, entry = self.hits[name]
        damage = self.cache.give(path, entry, self.directory)
        if damage:
            logger.warning("%s is in the cache, but %s; it runs", name, damage)
            del self.hits[name]
            return None
        self._given[name] = entry
        record = dataclasses.replace(record_of(entry), key=self._keys[name], cached=entry.run)
        return record, entry

    def _turn(self, name: str, remaining: Sequence[str]) -> bool:
        """Wait until no other job makes the same result; False where nobody was waited for, for the orders differ.

        All jobs take their turns in the order in which stages are declared: then no two wait for each other.
        """
        order = [other for other in declared() if other in remaining]
        if self._turns is None or self._waiting is None or order != [other for other in remaining if other in order]:
            return False
        waiting = partial(self._waiting, f"another job makes the same result of {name}")
        self._turns.take(name, self._keys[name], waiting)
        return True

    def release(self, name: str) -> None:
        """A stage's result is there, or this job will not make it."""
        if self._turns is not None:
            self._turns.release(name)

    def stands(self, record: StageRecord, files: Mapping[str, str]) -> bool:
        """Whether a stored result is one that :meth:`look` would take: the stage would come to the same again.

        Args:
            record: of the stage.
            files: path → SHA-256 of the run's files.
        """
        if self.cache is None or record.name not in self.hits or record.key != self._keys[record.name]:
            return False
        found = (entry for _, entry in self.cache.entries(record.name, record.key) if entry is not None)
        return any(_holds(files, entry) and not self._changed(entry) for entry in found)

    def why_not(self, record: StageRecord, files: Mapping[str, str]) -> str:
        """Why a result does not stand; arguments as of :meth:`stands`."""
        name, parts = record.name, self._parts.get(record.name)
        kept = self.cache.entries(name, record.key) if self.cache is not None and record.key else ()
        found = [entry for _, entry in kept if entry is not None and _holds(files, entry) and self._may_take(entry)]
        if found and parts is not None:
            changed = differing(jsonable(parts), found[0].parts) or min(map(self._changed, found), key=len)
            if changed:
                return f"{name} would not come to the same: {_first(changed)}"
        return f"what {name} came to here is not in the cache"

    def _may_take(self, entry: Entry) -> bool:
        """A single run takes its own results alone, unless it is told to take all."""
        return not self.plan.own_results or entry.run == str(self.directory.path)

    def _entry(self, record: StageRecord) -> Entry | None:
        """That of a result which an earlier process of this run made or was given."""
        run, files = record.cached or str(self.directory.path), file_digests(record, self.directory)
        found = self.cache.entries(record.name, record.key) if self.cache is not None else ()
        return next((entry for _, entry in found if entry is not None and entry.run == run and _holds(files, entry)),
                    None)  # fmt: skip

    def _earlier(self, name: str) -> Iterator[Entry | None]:
        """Results of other processes that a stage rests on; None for one of which it is not known what it took."""
        declaration = self._declaration(name)
        for other in () if declaration is None else declaration.follows:
            if other in self._given:
                yield self._given[other]
            elif other in self._before and self._before[other].status != SKIPPED:
                yield self._entry(self._before[other])
            elif other in self._keys:
                yield from self._earlier(other)

    def key(self, name: str, records: Mapping[str, StageRecord]) -> str:
        """A stage's key; empty where what it depends on is not known: a stage that it follows came to no result."""
        declaration = self._declaration(name)
        if declaration is None or name not in self._parts:
            return ""
        followed: Mapping[str, str] = self._parts[name]["follows"]
        same = all(other in records and records[other].key == key for other, key in followed.items())
        return self._keys[name] if same else ""

    def keep(self, record: StageRecord, made_by: MadeBy) -> None:
        """Keep a stage's result for later runs; that it can't be kept is logged, and costs no run."""
        if self.cache is None or not record.key:
            return
        try:
            earlier = list(self._earlier(record.name))
            if self._before and "model" in self._reads(record.name):  # another process may have built it
                before = [self._entry(each) for each in self._before.values() if each.key]
                earlier += [entry for entry in before if entry is not None] or [None]
            if None in earlier:
                self.tell(record.name, "its result is not kept for later runs: one of an earlier process of this run "
                                       "is not kept, and what that took is not known")  # fmt: skip
                return
            alone = entry_of(record, self._parts[record.name], self.directory, sources=self._seen.files(),
                             packages=imported_packages(), variables=self._seen.variables(),
                             modules=self._seen.modules(), cwd=self._seen.cwd(),
                             clock=self._clock(record.name), made_by=jsonable(made_by))  # fmt: skip
            entry = alone.resting_on(filter(None, earlier))
            known = self._parts[record.name]["files"] | entry.sources
            edited = self._seen.edited(entry.sources) + [path for path in known if content_of(path) != known[path]]
            if self._installed != installed_names() or own_source() != self._parts[record.name]["source"]:
                edited.insert(0, "a package, or this tool,")
            if edited:  # which of its states the result is of is not known
                self.tell(record.name, f"its result is not kept for later runs: {edited[0]} was written meanwhile")
                return
            self.cache.put(record.key, entry, self.directory)
        except OSError as error:
            self.tell(record.name, f"its result is not kept for later runs: {error}")

    def made_by(self, name: str, entry: Entry) -> MadeBy:
        """What made a stage's kept result.

        The compilers' options are those of the run that kept it, which had another backend where the stage reads none:
        then they say nothing of this one.
        """
        found: MadeBy = reader(MadeBy)(entry.made_by)
        declaration = self._declaration(name)
        if declaration is not None and "backend" in (declaration.reads or ()):
            return found
        apart = dataclasses.replace(found.compiled_by, options=None, options_before=None)
        return dataclasses.replace(found, compiled_by=apart)

    def _reads(self, name: str) -> Collection[str]:
        """What a stage reads of the settings."""
        declaration = self._declaration(name)
        return () if declaration is None or declaration.reads is None else declaration.reads

    def _declaration(self, name: str) -> Declaration | None:
        """Of a stage whose results are kept."""
        declaration = None if name in self.plan.stage_classes else declared().get(name)
        return None if declaration is None or declaration.reads is None else declaration

    def _clock(self, name: str) -> dict[str, str]:
        declaration = self._declaration(name)
        described = self.plan.described
        return {} if declaration is None or described is None else clock_of(declaration, described.machine)

    def _variables(self, declaration: Declaration) -> dict[str, str]:
        """Those of the process in which the stage runs; of one that runs in either kind, those that both have."""
        own = self.plan.reproduction
        given = {name: value for name, value in self.environment.items() if name not in own}
        if declaration.timed is False:
            given |= own
        return {name: value for name, value in given.items() if compiled_by.matters(name) or name in ALSO
                or (_WEIGHTS.search(name) and not is_secret(name))}  # fmt: skip

    def _found(self, name: str) -> tuple[tuple[Path, Entry] | None, str]:
        """A result that stands, or why there is none; empty text where nothing like it was ever kept."""
        assert self.cache is not None
        stale: list[list[str]] = []
        for path, entry in self.cache.entries(name, self._keys[name]):
            changed = ["what was kept is damaged"] if entry is None else self._changed(entry)
            if self.plan.own_results and (entry is None or not self._may_take(entry)):
                continue
            if entry is not None and not changed:
                return (path, entry), ""
            stale.append(changed)
        if stale or self.plan.own_results:
            return None, _first(min(stale, key=len, default=[]))
        parts, nearest, entry = jsonable(self._parts[name]), None, None
        for other in self.cache.latest(name):
            found = differing(parts, other.parts)
            if nearest is None or len(found) < len(nearest):
                nearest, entry = found, other
            if len(nearest) <= 1:
                break
        if not nearest or entry is None or len(nearest) > _ALIKE:
            return None, ""
        if parts | {"follows": {}} == dict(entry.parts) | {"follows": {}}:
            return None, ""  # it misses as what it follows does, which has said why
        return None, f"{run_id(Path(entry.run))} differs in {_first(nearest)}"

    def _location(self, name: str) -> str:
        """Where a module is found; kept results name the same ones, and each is looked for once."""
        if name not in self._places:
            self._places[name] = location_of(name, self._path)
        return self._places[name]

    def _changed(self, entry: Entry) -> list[str]:
        """What the user's code took that is another by now, and whose times they are if not this machine's."""
        clock = self._clock(entry.stage)
        return [
            *(f"a time's {name} was {value}, and is {clock.get(name)}" for name, value in entry.clock.items()
              if clock.get(name) != value),
            *([f"its working directory was {entry.cwd}"] if entry.cwd not in ("", os.getcwd()) else []),
            *(f"the module {name} was {place}" for name, place in entry.modules.items()
              if self._location(name) != place),
            *(f"the file {path} has changed" for path, known in entry.sources.items() if content_of(path) != known),
            *(f"{name} was {entry.packages[name]} and is {version}"
              for name, version in versions_of(entry.packages).items() if version != entry.packages[name]),
            *(f"the variable {name} has changed" for name, known in entry.variables.items()
              if name not in self.plan.reproduction and content_of_variable(name, self.environment) != known),
        ]  # fmt: skip


def _holds(files: Mapping[str, str], entry: Entry) -> bool:
    """Whether these are an entry's files; reproduction scripts name the run that they are in."""
    return all(files.get(name) == sha256 for name, sha256 in entry.files.items() if not name.startswith(REPRO.folder))


def _first(differing: Sequence[str]) -> str:
    """The first of what differs, and how many more."""
    more = [f"{len(differing) - _SHOWN} more"] if len(differing) > _SHOWN else []
    return ", ".join([*map(_short, differing[:_SHOWN]), *more])


def _short(text: str) -> str:
    return text if len(text) < 120 else f"{text[:117]}…"
