"""Which stages there are: ours, and those that installed packages add."""

import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.stages.backends.plugins import distribution, installed_stages
from inductor_debug.stages.contract import Stage
from inductor_debug.stages.declaration import RESERVED, Declaration, Question, named

log = logging.getLogger(__name__)

_NONE: Mapping[str, str] = MappingProxyType({})


@functools.cache
def declared() -> Mapping[str, Declaration]:
    """Name → declaration of every stage, in the order in which they are meant to run.

    Only declarations are imported. A package's stage that can't be taken is left out, with a warning.
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


def is_timed(name: str) -> bool | None:
    """Whether a stage's results are times; None where either will do, False for one that is not declared here."""
    stage = declared().get(name)
    return False if stage is None else stage.timed


def build_stage(name: str, config: Any, more: Mapping[str, str] = _NONE) -> Stage:
    """The stage called ``name`` with its options; ConfigurationError where there is none of that name.

    Args:
        more: stages beyond the declared ones, or in the place of them, name → ``"module:Class"``.
    """
    classes = {stage.name: stage.stage for stage in declared().values()} | dict(more)
    if name not in classes:
        raise invalid_choice("stages", name, classes)
    return named(classes[name])(config)


def _added(ours: Mapping[str, Declaration]) -> dict[str, Declaration]:
    """Name → declaration of the stages that installed packages add; a warning says why one is left out."""
    found: dict[str, Declaration] = {}
    for name, points in installed_stages().items():
        offers = ", ".join(f"{point.value} ({distribution(point)})" for point in points)
        try:
            found[name] = _checked(name, [point.value for point in points], {**ours, **found})
        except Exception as error:  # noqa: BLE001 - a package may raise anything; no other stage suffers for it
            log.warning("the stage %s of %s is left out: %s: %s", name, offers, type(error).__name__, error)
    return found


def _checked(name: str, offers: Sequence[str], known: Mapping[str, Declaration]) -> Declaration:
    """The declaration that packages offer under a name; ConfigurationError where it can't be taken."""
    if len(set(offers)) > 1:
        raise ConfigurationError("several packages offer a stage of that name")
    stage = named(offers[0])
    if not isinstance(stage, Declaration) or stage.name != name or not name.isidentifier():
        raise ConfigurationError(f"{offers[0]} is no Declaration of that name")
    taken = {claim for other in known.values() for claim in other.claims()}
    for kind, claim in sorted(stage.claims()):
        if (kind, claim) in taken or claim in RESERVED:
            raise ConfigurationError(f"there is another {kind} of the name {claim}")
    return stage
