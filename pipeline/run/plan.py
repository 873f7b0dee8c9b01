"""What the parent process tells a worker: plain JSON, so that nothing is pickled."""

import dataclasses
import time
import typing
from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import reader
from inductor_debug.pipeline.directory.records import RunDescription
from inductor_debug.pipeline.run.restoring import Expected
from inductor_debug.stages.artifacts.compiled_by import CompiledBy
from inductor_debug.stages.artifacts.records import Run
from inductor_debug.stages.config_json import from_primitives, to_primitives
from inductor_debug.stages.registry import declared, is_timed
from inductor_debug.stages.settings import Settings

ALWAYS_LAST = "report"


@dataclass
class Plan:
    """One run, as the worker sees it.

    Attributes:
        directory: the run directory, absolute.
        settings: the run's settings.
        stages: stage name → its options, in order of execution.
        run: the ``run`` part of ``summary.json``, without ``seconds``.
        remaining: stages that have no result yet.
        batch: those of them that this worker has to run; None for all.
        reproduction: environment variables that the run sets for bit reproduction alone, not the user: name → value.
        preflight: build and check every remaining stage first, and call a mistake found there a configuration error.
        stage_classes: stages beyond the registry's, name → ``"module:Class"``.
        memory_limit: bytes of private writable memory the process may have, or None.
        log_limit: bytes that the run's log may have, or None.
        timeout_s: seconds that a stage may take, or None.
        began: when the run started, seconds since the epoch.
        described: what the manifest is to say, as far as it is known.
        compiled_by: what compiles it, as far as it is known.
        expected: of a run that is made again, what it is held to.
        cache: folder of the results that need not be made again; None where all are made.
        own_results: of these take those alone that an earlier run in the same directory made.
        in_sweep: whether other jobs may run at the same time, which make the same or measure times.
        machine: folder by which the processes on this machine tell each other who measures times; None for none.
    """

    directory: str
    settings: Settings
    stages: dict[str, Any]
    run: Run
    remaining: list[str]
    batch: list[str] | None = None
    reproduction: dict[str, str] = field(default_factory=dict)
    preflight: bool = True
    stage_classes: dict[str, str] = field(default_factory=dict)
    memory_limit: int | None = None
    log_limit: int | None = None
    timeout_s: float | None = None
    began: float = field(default_factory=time.time)
    described: RunDescription | None = None
    compiled_by: CompiledBy = field(default_factory=CompiledBy)
    expected: Expected | None = None
    cache: str | None = None
    own_results: bool = False
    in_sweep: bool = False
    machine: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict."""
        return to_primitives(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Plan":
        """The inverse of :meth:`to_json`; ConfigurationError for an option that a stage does not have."""
        known = declared()
        stages = {
            name: from_primitives(known[name].options, options, key=f"stages.{name}") if name in known else options
            for name, options in data["stages"].items()
        }
        settings = from_primitives(Settings, data["settings"])
        records = {name: reader(shape)(data[name]) for name, shape in _RECORDS.items()}
        return cls(**(data | records | {"settings": settings, "stages": stages}))


_RECORDS = {"run": Run, "described": RunDescription | None, "compiled_by": CompiledBy, "expected": Expected | None}


def batch_of(remaining: list[str], reproduction: typing.Collection[str]) -> list[str]:
    """The stages at the head of ``remaining`` that can share a process: timed ones take none with variables that a run
    sets for bit reproduction alone. Some stages do not care."""
    if not reproduction:
        return list(remaining)
    kinds = [is_timed(name) for name in remaining]
    timed = next((kind for kind in kinds if kind is not None), None)
    others = [index for index, kind in enumerate(kinds) if kind not in (timed, None)]
    return remaining[: others[0]] if others else list(remaining)


def settings_of(config: Any) -> Settings:
    """The settings within a whole configuration (any object or dataclass that has their fields)."""
    values = {item.name: getattr(config, item.name) for item in dataclasses.fields(Settings)}
    return from_primitives(Settings, to_primitives(values))


def execution_order(names: typing.Iterable[str]) -> list[str]:
    """The stages in the order given, with the report last: it tells of all others."""
    names = list(names)
    return [name for name in names if name != ALWAYS_LAST] + [name for name in names if name == ALWAYS_LAST]
