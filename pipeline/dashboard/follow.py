"""How far a run is, from what it has stored by now."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.stored import read_bytes
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import LOG
from inductor_debug.stages.artifacts import files

_TAIL = 16 * 2**10
"""Bytes of a log that are read, its last."""
_LINE = re.compile(r"^\[[^]]*\]\[[^]]*\]\[[A-Z]+\] - (.+)$", re.MULTILINE)
"""A line of the log: when, who, how grave, and what."""
NOT_YET, NOW = "", "running"


@dataclass(frozen=True)
class Followed:
    """What a run does.

    Attributes:
        stages: name → status, in their order; :data:`NOW` of the first without a result, :data:`NOT_YET` of the others.
        last: the last that its log tells.
    """

    stages: Mapping[str, str]
    last: str = ""

    @property
    def done(self) -> int:
        """Stages that have a result."""
        return sum(status not in (NOW, NOT_YET) for status in self.stages.values())


@dataclass(frozen=True)
class _Configured:
    """What is taken from a stored configuration."""

    stages: dict[str, Any]


def followed(run: Path) -> Followed:
    """How far a run is that has begun; empty for one that has not."""
    folder = StoredFolder(run)
    try:
        planned = list(folder.read_yaml(store.HYDRA, _Configured).stages)
    except (FileNotFoundError, DamagedError):
        return Followed({})
    ended = {}
    for name in planned:
        try:
            record = files.STAGE_RECORD.read(folder, name)
        except DamagedError:
            continue
        if record is not None:
            ended[name] = record.status
    stages = {name: ended.get(name, NOT_YET) for name in planned}
    now = next((name for name, status in stages.items() if status == NOT_YET), None)
    return Followed(stages if now is None else {**stages, now: NOW}, _last_line(run / LOG))


def _last_line(log: Path) -> str:
    try:
        found = _LINE.findall(read_bytes(log, root=log.parent, last=_TAIL).decode(errors="replace"))
    except (FileNotFoundError, DamagedError):
        return ""
    return visible(found[-1]) if found else ""
