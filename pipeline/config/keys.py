"""What keys the schema has and what each takes, and the errors that say so."""

import re
from collections.abc import Sequence
from typing import Any

from inductor_debug.models.errors import (
    ConfigurationError,
    closest_first,
    example_of,
    invalid_choice,
    nearest,
)
from inductor_debug.pipeline.config.help import GROUPS, options
from inductor_debug.pipeline.config.renamed import RENAMED
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.schema_fields import fields_of, fitting, leaves
from inductor_debug.stages.registry import declared

_TOP_LEVEL = ["hydra", "experiment", "cluster"]


def stage_not_selected(key: str, name: str, selected: list[str]) -> ConfigurationError:
    """The error for an option of a stage that is not in the list."""
    listed = ", ".join(closest_first(name, selected)) or "none"
    return ConfigurationError(
        f"the stage {name} is not selected, so its options have no effect; selected: {listed}; "
        f"all stages: {', '.join(closest_first(name, declared()))}",
        key=key,
        hint=f"'stages=[{','.join([*selected, name])}]'",
    )


def unknown_key(key: str, overrides: Sequence[str] = (), where: str = "") -> ConfigurationError:
    """The error for a key that the schema does not have.

    Args:
        key: dotted.
        overrides: the command line's, to name the one that set the key.
        where: the file that the key stands in, if it is known.
    """
    parts = key.split(".")
    override = override_of(key, overrides)
    place = place_of(key, overrides, where)
    if key in RENAMED:
        value = override.partition("=")[2] or "VALUE"
        return ConfigurationError(
            "got a former name", key=key, place=place, valid=RENAMED[key], hint=f"{RENAMED[key]}={value}"
        )
    if key in GROUPS:
        return invalid_choice(key, override.partition("=")[2], options(key), where=place)
    if parts[0] == "hydra":
        return ConfigurationError(
            "Hydra has no such key",
            key=key,
            place=place,
            valid="those that --cfg hydra prints",
            hint="python -m pipeline --cfg hydra",
        )
    if parts[0] == "stages" and len(parts) > 1:
        name = parts[1]
        if name not in declared():
            return _unknown_stage(name, key, place)
        if len(parts) == 2 or parts[2] in fields_of(declared()[name].options):
            return stage_not_selected(override or key, name, selected_stages(overrides))
        parent, bad, choices = f"stages.{name}.", parts[2], list(fields_of(declared()[name].options))
    else:
        parent, bad, choices = _deepest(parts)
    if not choices:
        return ConfigurationError(
            f"{parent[:-1]} has no keys of its own",
            key=key,
            place=place,
            valid="none",
            hint=f"{parent.rpartition('.')[0]}=VALUE",
        )
    here = [f"{parent}{choice}" for choice in closest_first(bad, choices)]
    meant = [f"{parent}{found}"] if (found := nearest(bad, choices)) else _elsewhere(parts[-1], overrides)
    listed = ", ".join(dict.fromkeys([*meant, *here]))
    value = override.partition("=")[2] if override.lstrip("+").startswith(f"{key}=") else ""
    hint = example_of(meant[0], fitting(meant[0], value)) if meant else "python -m pipeline --help"
    return ConfigurationError("no such key", key=key, place=place, valid=listed, hint=hint)


def _elsewhere(name: str, overrides: Sequence[str]) -> list[str]:
    """Keys anywhere in the schema whose last part is like ``name``, but for options of stages that are not selected."""
    keys = leaves(selected_stages(overrides))
    found = nearest(name, {key.rpartition(".")[2] for key in keys})
    return [key for key in keys if key.rpartition(".")[2] == found]


def _unknown_stage(name: str, key: str, place: str) -> ConfigurationError:
    """The error for ``stages.NAME…`` with no such stage: what to type has the rest of what was typed."""
    wrong = invalid_choice("stages", name, declared(), where=place)
    typed = place if name in place else f"{key}=VALUE"
    nearest = closest_first(name, declared())[0]
    return wrong.with_parts(hint=typed.replace(name, nearest, 1))


def _deepest(parts: Sequence[str]) -> tuple[str, str, list[str]]:
    """The known part of a key with its dot, the first part that is not known, and what could stand there."""
    node: Any = Config
    for depth, part in enumerate(parts):
        fields = fields_of(node)
        if part not in fields:
            parent = "".join(f"{known}." for known in parts[:depth])
            return parent, part, [*fields] + ([] if parent else _TOP_LEVEL)
        node = fields[part]
    return ".".join(parts) + ".", "", list(fields_of(node))


def override_of(key: str, overrides: Sequence[str]) -> str:
    """The last override that set ``key``, else one within it, else one above it, as typed; "" where none did."""
    names = [(override.lstrip("+~").partition("=")[0], override) for override in overrides]
    tests = (
        lambda name: name == key,
        lambda name: name.startswith(f"{key}."),
        lambda name: bool(name) and key.startswith((f"{name}.", f"{name}[")),
    )
    for test in tests:
        found = [override for name, override in names if test(name)]
        if found:
            return found[-1]
    return ""


def place_of(key: str, overrides: Sequence[str], where: str) -> str:
    """Where a key came from: an override that names it, else the file ``where``, else an override above it."""
    override = override_of(key, overrides)
    return override if override.lstrip("+~").startswith(key) or not where else where


def selected_stages(overrides: Sequence[str]) -> list[str]:
    """The stages that a command line selects: the default list, or ``stages=[…]``, with additions and removals."""
    selected = [name for name, stage in declared().items() if stage.by_default]
    for override in overrides:
        name, _, value = override.partition("=")
        names = [word for word in re.findall(r"\w+", value) if word in declared()]
        if name == "stages":
            selected = names
        elif name.lstrip("+") == "stages":
            selected += names
        elif name.startswith("~stages."):
            selected = [stage for stage in selected if stage != name.partition(".")[2]]
    return selected
