"""What a run knows of its failure before minify looks, from what earlier stages stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.comparison import Diagnosis
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.formatting import as_sentence, because, counted, headline, in_lines, in_words
from inductor_debug.stages.minify.failures import DEFECT, ERROR, STORM
from inductor_debug.stages.numerics.verdict import FAILING

COMPILING = ("kerneldiff", "lower", "benchmark")
"""Stages that compile the case with the run's backend, the one that tells most first."""
CALLS = 5
"""Calls that bring a storm of recompilations, where the same inputs are compiled again."""
DIED = ("crashed", "timed_out")
REFERENCE = "reference"
"""Side of kerneldiff that the failure is not looked for in."""


@dataclass(frozen=True)
class Known:
    """A failure to look for.

    Attributes:
        stage: that met it; empty where none of :data:`COMPILING` was selected, so that any failure counts.
        expected: ``defect``, ``error TYPE``, ``signal NUMBER``, ``hang``, ``storm``; empty for any.
        types: of an exception, and of those that it wraps.
        at: graph and nodes of the first operation at fault, where that is known.
        draw: of the inputs, the first that fails.
        fails: whether the run fails by it: kerneldiff may name an operation at fault and pass.
        calls: of the model that bring it, on the same inputs.
    """

    stage: str = ""
    expected: str = ""
    types: tuple[str, ...] = ()
    at: tuple[str, list[str]] | None = None
    draw: int = 0
    fails: bool = True
    calls: int = 1

    def is_it(self, failure: str) -> bool:
        """Whether a failure that was found, as :class:`~stages.minify.failures.Failure` words it, is this one."""
        kind, *rest = failure.split()
        if kind == ERROR and rest[0] in self.types:
            return True
        return self.expected in ("", failure, kind)


@dataclass(frozen=True)
class Nothing:
    """Nothing to look for: the stage's status, and why."""

    status: Literal["passed", "skipped"]
    message: str


def known_failure(artifacts: Artifacts, earlier: Mapping[str, StageRecord]) -> Known | Nothing:
    """What there is to minify.

    Args:
        artifacts: of the run.
        earlier: the stages before this one, by name.
    """
    found = _compiled(artifacts, earlier)
    return (
        Known("guards", STORM, fails=False, calls=CALLS) if isinstance(found, Nothing) and _storms(earlier) else found
    )


def _storms(earlier: Mapping[str, StageRecord]) -> bool:
    """Whether the stage guards saw the same inputs compiled again."""
    counts = jsonable(earlier["guards"].summary.get("guards")) if "guards" in earlier else None
    return bool(counts and (counts.get("recompiling") or {}).get("repeat"))


def _compiled(artifacts: Artifacts, earlier: Mapping[str, StageRecord]) -> Known | Nothing:
    """What the stages met that compile the case."""
    selected = [name for name in COMPILING if name in earlier]
    diagnosis = files.DIAGNOSIS.read(artifacts)
    if not selected and diagnosis is None:
        return Known()
    if diagnosis is not None and (found := _diagnosed(diagnosis)) is not None:
        return found
    ended = [earlier[name] for name in selected if earlier[name].status in DIED]
    for record in ended:
        if scripts := record.summary.get("repros"):
            return Nothing(
                "skipped",
                f"There is nothing to do: {record.name} left {counted(len(scripts), 'reproduction')} of its own.",
            )
        if record.cause:
            kind, *types = record.cause.split()
            return Known(record.name, f"{kind} {types[-1]}", tuple(types)) if types else Known(record.name, kind)
    if ended:
        message = as_sentence(headline(ended[0].message))
        return Nothing("skipped", in_words(f"Not established: no script can show how {ended[0].name} ended.", message))
    if diagnosis is None:
        return _without_comparison(selected, earlier)
    if diagnosis.verdict in FAILING:
        why = "Not established: kerneldiff could not compare, so no failure is known."
        return Nothing("skipped", in_words(why, as_sentence(diagnosis.message)))
    return Nothing("passed", f"There is nothing to minify: kerneldiff's verdict is {diagnosis.verdict}.")


def _diagnosed(diagnosis: Diagnosis) -> Known | Nothing | None:
    """What kerneldiff found wrong; None where it found nothing."""
    draw = diagnosis.draw if diagnosis.draw > 1 else 0
    error = diagnosis.error or {}
    if error.get("side") == REFERENCE:
        return Nothing("skipped", because("There is nothing to compare with", diagnosis.message))
    if error:
        ends = [line.partition(":")[0].rpartition(".")[2] for line in error.get("traceback", "").splitlines()]
        return Known("kerneldiff", f"{ERROR} {error['type']}", (error["type"], *ends), draw=draw)
    localized = diagnosis.localized
    place = None if localized is None or not localized.culprits else localized.culprits[0].place
    at = None if place is None else (place.graph, place.operations)
    defect = diagnosis.verdict == DEFECT
    if defect or at is not None:
        return Known("kerneldiff", DEFECT, at=at, draw=draw, fails=defect)
    return None


def _without_comparison(selected: list[str], earlier: Mapping[str, StageRecord]) -> Nothing:
    told = ", ".join(f"{name} {earlier[name].status}" for name in selected)
    compared = earlier.get("kerneldiff")
    why = "was not selected" if compared is None else f"was {compared.status}"
    message = "" if compared is None else as_sentence(headline(compared.message))
    return Nothing("skipped", in_lines(f"Not established: kerneldiff {why}, so no failure is known.", message,
                                       f"Of the others: {told}."))  # fmt: skip
