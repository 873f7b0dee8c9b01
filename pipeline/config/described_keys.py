"""Every key of the configuration, as the schema and its docstrings describe it."""

import dataclasses
import itertools
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from inductor_debug.models.options import choices_of, items_of, range_of
from inductor_debug.pipeline.config import docstrings
from inductor_debug.pipeline.config.help import CONF
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.schema_fields import describe
from inductor_debug.stages.registry import declared


@dataclass(frozen=True)
class Key:
    """A key of the configuration.

    Attributes:
        name: dotted. takes: the values in words. default: as it is typed.
        text: what it means, as a docstring has it; "" where none says it.
        field, annotation: of the dataclass that has it. value: its default.
        items: the dataclass of an item, where it is a list of mappings.
    """

    name: str
    takes: str
    default: str
    text: str
    field: "dataclasses.Field[Any]"
    annotation: Any
    value: Any
    items: type | None = None

    @property
    def nullable(self) -> bool:
        """Whether it may be null."""
        return type(None) in typing.get_args(self.annotation)

    @property
    def choices(self) -> tuple[str, ...]:
        """The closed set of its values as they are typed, but for null; empty where it has none."""
        kinds = {self.annotation, *typing.get_args(self.annotation)}
        return choices_of(self.field) or (("true", "false") if bool in kinds else ())


def keys(node: Any, prefix: str) -> Iterator[Key]:
    """Every key of an instance of a dataclass and of those within it, in the order of their fields.

    Args:
        node: with the defaults. Fields of it that hold dataclasses are walked too.
        prefix: of its keys, with the dot.
    """
    said, hints = docstrings.described(type(node)), typing.get_type_hints(type(node))
    for item in dataclasses.fields(node):
        value, name = getattr(node, item.name), f"{prefix}{item.name}"
        if dataclasses.is_dataclass(value):
            yield from keys(value, f"{name}.")
            continue
        within = next((one for one in typing.get_args(hints[item.name]) if dataclasses.is_dataclass(one)), None)
        hint = hints[item.name]
        text, default = said.get(item.name, ""), shown_default(name, value)
        yield Key(name, _takes(item, hint), default, text, item, hint, value, _as_type(within))


def _takes(item: "dataclasses.Field[Any]", annotation: Any) -> str:
    """The values of a field in words: its range or closed set where it declares one, else its type."""
    declared_range, choices, each = range_of(item), choices_of(item), items_of(item)
    null = " or `null`" if type(None) in typing.get_args(annotation) else ""
    if declared_range is not None:
        return declared_range.valid() + null
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices) + null
    if each:
        return f"a list of {', '.join(f'`{one}`' for one in each)}{null}"
    within = [one for one in typing.get_args(annotation) if dataclasses.is_dataclass(one)]
    return f"a list of mappings{null}" if within else describe(annotation).replace(" or null", null)


def shown_default(name: str, value: Any) -> str:
    """A key's default as it is typed, as Markdown."""
    if name == "stages":
        listed = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["defaults"]
        value = next(entry["stages"] for entry in listed if isinstance(entry, dict) and "stages" in entry)
    shown = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
    return "given by the model's file" if value == "???" else f"`{shown}`"


def _as_type(found: Any) -> type | None:
    return found if isinstance(found, type) else None


def all_keys() -> list[Key]:
    """Those of every run, and the options of every stage."""
    stages = (keys(stage.options(), f"stages.{stage.name}.") for stage in declared().values())
    return [*keys(Config(), ""), *itertools.chain.from_iterable(stages)]
