"""The one small contract behind every stage, free of torch.

A stage is told what earlier stages stored (``context.artifacts``) and, in the same process, what they left alive
(``context.live``); it returns a :class:`StageResult`. The runner stores the result; the stage does not know where.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from inductor_debug.models.stored import parse_csv
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.settings import Settings

if TYPE_CHECKING:
    from inductor_debug.models.case import Case
    from inductor_debug.stages.torch_internals.compiler_options import CompilationOptions


class Artifacts(Protocol):
    """What earlier stages stored, read-only, by path relative to the run: ``capture/graphs/g0.forward.json``."""

    def names(self, prefix: str = "") -> list[str]:
        """Stored paths that start with ``prefix``, sorted."""
        ...

    def read_bytes(self, name: str) -> bytes:
        """Content of one artifact; FileNotFoundError where there is none."""
        ...

    def read_text(self, name: str) -> str: ...

    def read_json(self, name: str) -> Any: ...

    def read_table(self, name: str) -> list[dict[str, str]]:
        """A CSV file's rows, cells as text."""
        ...


@dataclass
class StageContext:
    """What a stage is given.

    Attributes:
        settings: the run's settings.
        artifacts: what earlier stages stored, in this process or in one that died.
        live: objects that stages of this process share: ``case`` (see :attr:`case`), ``compiled`` (lower's
            compiled case, see ``stages.lower.compiled_case``). Empty in a fresh process: never rely on a key.
        progress: call with a short text to show progress.
        left: see :meth:`leave`.
        compiled_with: called with the compilers' options that were in force where the case was compiled
            (``stages.torch_internals.compiler_options.CompilationOptions``).
        children: environment variables for processes in which a stage measures, without those that the run set only for
            bit reproduction. None where a stage must do all in this process (a debugger, a notebook).
        earlier: the run's selected stages before this one, with how each ended; empty where there is none.
        time_s: seconds after which the runner ends a stage; None where it does not.
        unfinished: a folder that outlives a run which was cut short, for the same configuration started again in the
            same directory. The runner keeps ``.jsonl`` files of it alone. None where nothing outlives.
        folder: of the run, which commands that a stage proposes name; None where nothing is stored in one.
    """

    settings: Settings
    artifacts: Artifacts
    live: dict[str, Any] = field(default_factory=dict)
    progress: Callable[[str], None] = lambda text: None
    left: "list[StageResult]" = field(default_factory=list)
    compiled_with: "Callable[[CompilationOptions], None]" = lambda options: None
    children: Mapping[str, str] | None = None
    earlier: Mapping[str, StageRecord] = field(default_factory=dict)
    time_s: float | None = None
    unfinished: Path | None = None
    folder: Path | None = None

    def leave(self, artifacts: dict[str, Any], summary: dict[str, Any]) -> None:
        """Store what a failure left, whether the stage then raises or makes a result of it; once an artifact's path.

        Args:
            artifacts, summary: as those of :class:`StageResult`.
        """
        known = {name for result in self.left for name in result.artifacts}
        if not set(artifacts) <= known:
            self.left.append(StageResult("failed", artifacts=artifacts, summary=summary))

    @property
    def case(self) -> "Case":
        """The built case; built on first use, then shared by the stages of this process."""
        if "case" not in self.live:
            self.live["case"] = self.settings.build_case()
        return self.live["case"]


Artifact = "str | bytes | dict | list | pandas.DataFrame"
"""Text, bytes, a JSON-able value (path ends in .json) or a table (path ends in .csv)."""


@dataclass
class StageResult:
    """What a stage found.

    Attributes:
        status: "passed" or "failed" (a verdict failed), or "skipped" where the stage had nothing to do.
        message: for a person. The first line says in a sentence what was found, and what to type where there is
            something to do; the lines below it are the figures behind that, folded where the first alone is shown.
        artifacts: path relative to the run → content. ``.json`` takes JSON-able values, ``.csv`` a DataFrame,
            anything else str or bytes. The runner writes them whole, floats that JSON lacks as "nan", "inf", "-inf".
        summary: this stage's parts of ``summary.json``, as its declaration names them: key → record or mapping.
        digest: artifact → columns (CSV) or keys of each record (JSON; empty for the whole) that belong to the run's
            digest: what is equal for two runs of the same configuration on the same machine and versions.
        repeatable: False where the same stage may come to more another time, because a budget ended it: such a result
            is not kept for later runs.
    """

    status: Literal["passed", "failed", "skipped"]
    message: str = ""
    artifacts: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    digest: dict[str, list[str]] = field(default_factory=dict)
    repeatable: bool = True


class Stage(ABC):
    """One step of the pipeline. Subclasses are built with their own typed config before the first stage runs.

    Attributes:
        declaration: what it says of itself.
        config: its options.
    """

    declaration: ClassVar[Declaration]

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    def name(self) -> str:
        """As in ``stages=[…]``."""
        return self.declaration.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the stages without which it is skipped."""
        return self.declaration.needs

    @property
    def uses_torch(self) -> bool:
        """Whether it may import torch."""
        return self.declaration.uses_torch

    def check(self, context: StageContext) -> None:  # noqa: B027 - nothing to check is a fine default
        """Raise ConfigurationError for what only torch can tell (an operator, a dtype, an Inductor option).

        Called in the worker, for every selected stage, before the first stage runs.
        """

    @abstractmethod
    def run(self, context: StageContext) -> StageResult:
        """Do the work. May raise anything: the runner turns it into this stage's ``crashed`` result."""


class MemoryArtifacts:
    """Artifacts held in memory: for notebooks and unit tests."""

    def __init__(self, content: dict[str, Any] | None = None) -> None:
        self.content: dict[str, Any] = dict(content or {})

    def add(self, result: StageResult) -> None:
        """Keep what a stage returned, for the next one."""
        self.content |= result.artifacts

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self.content if name.startswith(prefix))

    def read_bytes(self, name: str) -> bytes:
        if name not in self.content:
            raise FileNotFoundError(name)
        return encode(name, self.content[name])

    def read_text(self, name: str) -> str:
        return self.read_bytes(name).decode()

    def read_json(self, name: str) -> Any:
        return json.loads(self.read_bytes(name))

    def read_table(self, name: str) -> list[dict[str, str]]:
        return parse_csv(self.read_bytes(name), Path(name))
