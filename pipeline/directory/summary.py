"""``summary.json``: the machine-readable result of a run, and its verdict and exit code."""

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from inductor_debug.stages.artifacts.compiled_by import CompiledBy
from inductor_debug.stages.artifacts.records import Run, StageEntry, StageRecord
from inductor_debug.stages.declaration import RESERVED
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.registry import declared, is_ours

logger = logging.getLogger(__name__)

SCHEMA = 1
PASSED, FAILED, CRASHED, TIMED_OUT, SKIPPED = "passed", "failed", "crashed", "timed_out", "skipped"
EXIT_PASSED, EXIT_FAILED, EXIT_CONFIGURATION, EXIT_CRASHED = 0, 1, 2, 3
EXIT_CODES = {PASSED: EXIT_PASSED, FAILED: EXIT_FAILED, CRASHED: EXIT_CRASHED}

REPROS = "repros"
"""The part that several stages add to."""


def empty_parts(selected: Iterable[str] = ()) -> dict[str, Any]:
    """Every part that stages fill, null where nothing ran: those of our stages, and of other stages of ``selected``."""
    shown = [stage for stage in declared().values() if is_ours(stage) or stage.name in set(selected)]
    parts = {key: part for stage in shown for key, part in stage.summary.items()}
    return jsonable(parts) | {REPROS: []}


def parts_of(stored: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What stages left in a ``summary.json``: part → content, stages that are not installed here included.

    The parts of our default stages are always there; another's only where it holds something.
    """
    always = {key for stage in declared().values() if is_ours(stage) and stage.by_default for key in stage.summary}
    others = {key: value if isinstance(value, Mapping) else {key: value}
              for key, value in stored.items() if key not in (*always, *RESERVED)}  # fmt: skip
    filled = {key: part for key, part in others.items() if any(value is not None for value in part.values())}
    return {key: stored.get(key) or {} for key in empty_parts() if key in always} | filled


def verdict(statuses: Iterable[str]) -> str:
    """A run's verdict from its stages' statuses: crashed before failed before passed; a skip does no harm."""
    found = set(statuses)
    if found & {CRASHED, TIMED_OUT}:
        return CRASHED
    return FAILED if FAILED in found else PASSED


def exit_code(stages: Iterable[StageEntry | StageRecord]) -> int:
    """The exit code that goes with the :func:`verdict` on the stages.

    A mistake in the configuration that only compiling or running could tell is one all the same: 2, unless a stage
    crashed.
    """
    stages = list(stages)
    code = EXIT_CODES[verdict(stage.status for stage in stages)]
    mistaken = any(stage.mistake for stage in stages)
    return max(code, EXIT_CONFIGURATION) if mistaken else code


def build_summary(
    run: Run, stages: Iterable[str], records: Mapping[str, StageRecord], seconds: float, compiled_by: CompiledBy | None
) -> dict[str, Any]:
    """The whole ``summary.json``, as plain data.

    Args:
        run: the ``run`` part without ``seconds``.
        stages: names of the selected stages in order; those without a record are left out.
        records: stage name → stored record.
        seconds: wall-clock seconds of the run so far.
        compiled_by: what compiled it; None where that is not known.
    """
    present = [records[name] for name in stages if name in records]
    result = empty_parts(stages)
    for record in present:
        for key, value in record.summary.items():
            if key not in result:
                logger.warning("the %s stage's summary has %r, which summary.json does not", record.name, key)
            elif isinstance(value, list):
                result[key].extend(value)
            else:
                _merge(result[key], value)
    for name, stage in declared().items():
        if _broke(records.get(name)):
            for key, part in stage.if_broken.items():
                result[key] |= {field: value for field, value in part.items() if result[key][field] is None}
    head = {
        "schema": SCHEMA,
        "run": dataclasses.replace(run, seconds=round(seconds, 3)),
        "compiled_by": compiled_by,
        "verdict": verdict(record.status for record in present),
        "stages": [record.entry() for record in present],
    }
    return jsonable(head) | result


def _broke(record: StageRecord | None) -> bool:
    return record is not None and (record.status in (CRASHED, TIMED_OUT) or bool(record.mistake))


def _merge(target: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(target.get(key), dict) and isinstance(value, Mapping):
            _merge(target[key], value)
        else:
            target[key] = value
