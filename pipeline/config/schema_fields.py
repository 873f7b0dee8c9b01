"""What keys the schema has, and what each takes."""

import dataclasses
import re
import types
import typing
from collections.abc import Iterable
from typing import Any

from inductor_debug.models.options import choices_of, items_of, range_of
from inductor_debug.models.units import VALID_BYTES, parse_bytes
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.stages.accelerators.rule_kinds import KINDS, SCALARS
from inductor_debug.stages.registry import declared

EXAMPLES = {f"accel.{scalar}": KINDS[name].example for scalar, name in SCALARS.items()} | {
    "accel.allowed": "[aten.add,aten.mm]",
    "accel.alignment_roles": "[activation]",
    "accel.rules": "[{rule: alignment, value: 16}]",
    "accel.waivers": "[{rule: alignment, reason: accepted}]",
    "accel.numerics.accumulate": "bfloat16",
    "accel.numerics.tile": "[32,32]",
    "accel.numerics.fallback": "[aten.sort]",
    "device": "cpu",
    "reference.device": "cpu",
    "reference.backend": "eager",
    "runner.memory_limit": "8GiB",
    "model.inputs": "inputs.safetensors",
}
"""Key → a value of it, of those whose field does not tell."""


def leaves(stages: Iterable[str] | None = None) -> dict[str, Any]:
    """Every dotted key that takes a value → its annotation, with the options of those stages (None: of all)."""
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("", Config)]
    while pending:
        prefix, node = pending.pop(0)
        for name, annotation in fields_of(node).items():
            inner = fields_of(annotation)
            if inner:
                pending.append((f"{prefix}{name}.", annotation))
            elif f"{prefix}{name}" != "stages":
                found[f"{prefix}{name}"] = annotation
    for stage in declared() if stages is None else stages:
        found |= {f"stages.{stage}.{name}": kind for name, kind in fields_of(declared()[stage].options).items()}
    return found


def field_of(key: str) -> "tuple[dataclasses.Field[Any], Any] | None":
    """The dataclass field behind a dotted key and its type; None for a key that is none."""
    above, _, name = key.rpartition(".")
    inner = _without_none(annotation_of(above) if above else Config)[0]
    if not dataclasses.is_dataclass(inner) or name not in fields_of(inner):
        return None
    return next(item for item in dataclasses.fields(inner) if item.name == name), fields_of(inner)[name]


def expected(key: str) -> tuple[str, str] | None:
    """What the schema says that a key takes, for a person, and an example."""
    node = annotation_of(key)
    return None if node is None else (describe(node), example_for(re.sub(r"\[\d+\]$", "", key)))


def is_list(annotation: Any) -> bool:
    """Whether a value of that type is a list, or may be null besides."""
    return typing.get_origin(_without_none(annotation)[0]) is list


def example_for(key: str) -> str:
    """A value that a key takes, as it is typed."""
    found = field_of(key)
    if key in EXAMPLES or found is None:
        return EXAMPLES.get(key, "NAME")
    field, annotation = found
    declared, choices = range_of(field), choices_of(field)
    if declared is not None or choices:
        return declared.example if declared is not None else choices[0]
    if items_of(field):
        return f"[{items_of(field)[0]}]"
    kind = _without_none(annotation)[0]
    examples = {bool: "true", int: "16", float: "0.5", str: "text"}
    return examples.get(kind, "[]" if typing.get_origin(kind) is list else "{}")


def fitting(key: str, typed: str) -> str:
    """What was typed where the key takes it, else an example of what it takes."""
    found = field_of(key)
    if found is None or not typed:
        return typed or example_for(key)
    field, annotation = found
    declared, choices = range_of(field), choices_of(field)
    kinds = {_without_none(annotation)[0], *typing.get_args(annotation)}
    origins = {typing.get_origin(kind) for kind in kinds}
    if typed == "null" and type(None) in kinds:
        return typed
    if declared is not None:
        number = re.fullmatch(r"[+-]?\d{1,40}", typed)
        fits = number is not None and declared.holds(int(typed) if declared.whole else float(typed))
    elif choices or bool in kinds:
        fits = typed in (choices or ("true", "false"))
    elif list in origins or dict in origins:
        fits = typed.startswith("[" if list in origins else "{") and key not in EXAMPLES and not items_of(field)
    elif {int, str} <= kinds:
        fits = parse_bytes(typed) is not None
    else:
        fits = key not in EXAMPLES
    return typed if fits else example_for(key)


def annotation_of(key: str) -> Any:
    """The type that the schema gives a key; None for a key that it does not have."""
    node: Any = Config
    for part in key.split("."):
        match = re.fullmatch(r"(\w+)(\[\d+\])?", part)
        name = match[1] if match else part
        stage = declared().get(name) if node == dict[str, Any] else None
        fields = fields_of(node) if stage is None else {name: stage.options}
        if name not in fields:
            return None
        node = fields[name]
        if match and match[2]:
            node = typing.get_args(_without_none(node)[0])[0]
    return node


def describe(annotation: Any) -> str:
    """What a value of that type is, for a person."""
    inner, optional = _without_none(annotation)
    suffix = " or null" if optional else ""
    if {int, str} <= set(typing.get_args(annotation)):
        return VALID_BYTES + suffix
    descriptions = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
    if inner in descriptions:
        return descriptions[inner] + suffix
    if typing.get_origin(inner) is list:
        return f"a list, each {describe(typing.get_args(inner)[0])}" + suffix
    mapping = f" with the keys {', '.join(fields_of(inner))}" if dataclasses.is_dataclass(inner) else ""
    return f"a mapping{mapping}{suffix}"


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [item for item in typing.get_args(annotation) if item is not type(None)]
        return inner[0], True
    return annotation, False


def fields_of(node: Any) -> dict[str, Any]:
    """Key → annotation of a dataclass, or of a mapping given as a dict; empty for a value."""
    if isinstance(node, dict):
        return node
    inner = _without_none(node)[0]
    if not dataclasses.is_dataclass(inner):
        return {}
    hints = typing.get_type_hints(inner)
    return {item.name: hints[item.name] for item in dataclasses.fields(inner)}
