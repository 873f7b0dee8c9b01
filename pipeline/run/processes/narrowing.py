"""What a stage is given of its run: what it declares to read, and no more, so that nothing else makes a difference."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from inductor_debug.models.stored import parse_csv
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.contract import Artifacts, StageContext
from inductor_debug.stages.declaration import Declaration


class Of:
    """Of stored artifacts, those of some stages; implements :class:`stages.contract.Artifacts`.

    Args:
        artifacts: of the whole run.
        known: names of those that are shown.
    """

    def __init__(self, artifacts: Artifacts, known: Collection[str]) -> None:
        self._artifacts, self._known = artifacts, frozenset(known)

    def names(self, prefix: str = "") -> list[str]:
        return [name for name in self._artifacts.names(prefix) if name in self._known]

    def read_bytes(self, name: str) -> bytes:
        if name not in self._known:
            raise FileNotFoundError(name)
        return self._artifacts.read_bytes(name)

    def read_text(self, name: str) -> str:
        return self.read_bytes(name).decode()

    def read_json(self, name: str) -> Any:
        self.read_bytes(name)
        return self._artifacts.read_json(name)

    def read_table(self, name: str) -> list[dict[str, str]]:
        return parse_csv(self.read_bytes(name), Path(name))


def narrowed(
    context: StageContext, declaration: Declaration | None, records: Mapping[str, StageRecord]
) -> StageContext:
    """A stage's context with what it declares to read, and no more, of the settings and of earlier stages.

    Args:
        context: of the run.
        declaration: of the stage; None, or one that reads all, gets all.
        records: stage → record, of those before it.
    """
    if declaration is None or declaration.reads is None:
        return dataclasses.replace(context, earlier=records)
    followed = {name: records[name] for name in declaration.follows if name in records}
    known = [artifact for record in followed.values() for artifact in record.artifacts]
    return dataclasses.replace(
        context,
        settings=context.settings.narrowed(declaration.reads),
        artifacts=Of(context.artifacts, known),
        earlier=followed,
    )
