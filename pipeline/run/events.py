"""What a worker tells its parent, event by event."""

import typing
from dataclasses import dataclass

from inductor_debug.pipeline.directory.records import TorchFound
from inductor_debug.stages.artifacts.compiled_by import CompiledBy
from inductor_debug.stages.event_lines import EventLines

PREFLIGHT = "preflight"
"""In a stage's place while the stages are checked."""


@dataclass(frozen=True)
class Checked:
    """Every stage was built and checked."""


@dataclass(frozen=True)
class Rejected:
    """The configuration can't be run: nothing ran, and nothing will."""

    message: str


@dataclass(frozen=True)
class Started:
    """A stage runs now, or is skipped."""

    stage: str
    skipped: bool


@dataclass(frozen=True)
class Progress:
    """What the stage does now."""

    stage: str
    text: str


@dataclass(frozen=True)
class Waiting:
    """Another process has to end something first. Until ``text`` is empty, a stage's time does not run."""

    text: str


@dataclass(frozen=True)
class Finished:
    """A stage's record is stored; ``seconds`` of wall clock."""

    stage: str
    status: str
    seconds: float
    message: str


@dataclass(frozen=True)
class Warned:
    """Something that the user is to know."""

    text: str


@dataclass(frozen=True)
class Compiled:
    """What compiles the run, as far as it is known: before the first stage, and once the case is compiled."""

    by: CompiledBy


@dataclass(frozen=True)
class Found:
    """What torch found; None where no stage imported it."""

    devices: TorchFound | None


@dataclass(frozen=True)
class Full:
    """A stage's record could not be stored; nothing more runs."""

    message: str


@dataclass(frozen=True)
class Done:
    """No stage remains; ``torch`` where one needed it."""

    torch: bool = False


Event = Checked | Rejected | Started | Progress | Waiting | Finished | Warned | Compiled | Found | Full | Done

LINES: EventLines[Event] = EventLines(typing.get_args(Event))
