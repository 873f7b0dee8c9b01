"""Which stages there are: ours, and those that installed packages add. Free of torch."""

import functools
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from inductor_debug.models.errors import invalid_choice
from inductor_debug.stages.backends.plugins import distribution, installed_stages
from inductor_debug.stages.contract import Stage
from inductor_debug.stages.declaration import Declaration, Question, named

log = logging.getLogger(__name__)

_NONE: Mapping[str, str] = MappingProxyType({})


@functools.cache
def declared() -> Mapping[str, Declaration]:
    """Name → declaration of every stage, in the order in which they are meant to run.

    Only declarations are imported. A package's stage is left out, with a warning, where it has the name of another one
    or its declaration can't be imported.
    """
    folders = sorted(file.parent.name for file in Path(__file__).parent.glob("*/declaration.py"))
    found = {name: named(f"inductor_debug.stages.{name}.declaration:DECLARATION") for name in folders}
    found |= _added(found)
    return MappingProxyType({stage.name: stage for stage in sorted(found.values(), key=lambda stage: stage.order)})


def questions() -> dict[str, Question]:
    """Name → question, of all stages."""
    return {name: question for stage in declared().values() for name, question in stage.questions.items()}


def is_ours(stage: Declaration) -> bool:
    """Whether a stage is one of ours, so that every run has its part of ``summary.json``."""
    return stage.stage.startswith("inductor_debug.stages.")


def is_timed(name: str) -> bool:
    """Whether a stage's results are times; False for one that is not declared here."""
    stage = declared().get(name)
    return stage is not None and stage.timed


def build_stage(name: str, config: Any, more: Mapping[str, str] = _NONE) -> Stage:
    """The stage called ``name`` with its options; ConfigurationError where there is none of that name.

    Args:
        more: stages beyond the declared ones, or in the place of them, name → ``"module:Class"``.
    """
    classes = {stage.name: stage.stage for stage in declared().values()} | dict(more)
    if name not in classes:
        raise invalid_choice("stages", name, classes)
    stage: Stage = named(classes[name])(config)
    return stage


def _added(ours: Mapping[str, Declaration]) -> dict[str, Declaration]:
    """Name → declaration of the stages that installed packages add."""
    found = {}
    for name, points in installed_stages().items():
        offers = ", ".join(f"{point.value} ({distribution(point)})" for point in points)
        if name in ours or len({point.value for point in points}) > 1:
            why = "that is one of ours" if name in ours else "several packages offer that name"
            log.warning("the stage %s of %s is left out: %s", name, offers, why)
            continue
        try:
            stage = named(points[0].value)
        except Exception as error:  # noqa: BLE001 - a package may raise anything; no other stage suffers for it
            log.warning("the stage %s of %s is left out: %s: %s", name, offers, type(error).__name__, error)
            continue
        if not isinstance(stage, Declaration) or stage.name != name:
            log.warning("the stage %s of %s is left out: it is no Declaration of that name", name, offers)
            continue
        found[name] = stage
    return found
