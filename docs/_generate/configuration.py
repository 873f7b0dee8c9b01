"""docs/reference/configuration.md: every key of the configuration, and what each group's files are."""

import dataclasses
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from _generate import docstrings
from inductor_debug.models.options import choices_of, items_of, range_of
from inductor_debug.pipeline.config.help import CONF, GROUPS
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.schema_fields import describe
from inductor_debug.stages.declaration import named
from inductor_debug.stages.registry import declared, is_ours

HEADER = """# Configuration

Which keys does the configuration have, and what does each take?

This page is made of the schema by `make docs`. A key is typed as `KEY=VALUE` after `inductor-debug run`; a group's file
is chosen as `GROUP=NAME`. A key with the value `null` is not set. [Configure a run](../how-to/configure-a-run.md)
leads to what is set most.
"""
TITLES = {
    "": ("Top level", "What the case is, beside its model."),
    "model": ("model", "One model and its inputs."),
    "accel": ("accel", "The accelerator's profile. A scalar that is not set gives no rule."),
    "backend": ("backend", "What executes the graph under test."),
    "reference": ("reference", "What the test side is compared with."),
    "runner": ("runner", "How the stages are run."),
    "experiment": ("experiment", "A sweep under a name."),
    "cluster": ("cluster", "Where a sweep's jobs run."),
}
"""Group → the title of its section and what it is about."""


@dataclass(frozen=True)
class Key:
    """A key of the configuration.

    Attributes:
        name: dotted. takes: the values in words. default: as it is typed. text: what it means, as a docstring has it.
        items: the dataclass of an item, where it is a list of mappings.
    """

    name: str
    takes: str
    default: str
    text: str
    items: type | None = None


def page() -> str:
    """The whole page; UndescribedError where a key is described nowhere."""
    found = list(keys(Config(), ""))
    parts = [HEADER]
    for group, (title, about) in TITLES.items():
        parts.append(f"## {title}\n\n{about}\n")
        parts += [_shown(key) for key in found if _group(key.name) == group and key.name != "stages"]
        if group in GROUPS:
            parts.append(_choices(group))
    parts.append("## stages\n\nThe stages that run, and their options.\n")
    parts += [_shown(key) for key in found if key.name == "stages"]
    for stage in declared().values():
        if is_ours(stage):
            prefix = f"stages.{stage.name}"
            shown = [_shown(key) for key in keys(stage.options(), f"{prefix}.")]
            parts += [f"### {prefix}\n", *(shown or ["This stage has no options.\n"])]
    return "\n".join(parts)


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
        if item.name not in said:
            raise docstrings.UndescribedError(f"{name}: {type(node).__qualname__} does not describe it")
        within = next((one for one in typing.get_args(hints[item.name]) if dataclasses.is_dataclass(one)), None)
        yield Key(name, _takes(item, hints[item.name]), _default(name, value), said[item.name], _as_type(within))


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


def _default(name: str, value: Any) -> str:
    if name == "stages":
        listed = yaml.safe_load((CONF / "config.yaml").read_text(encoding="utf-8"))["defaults"]
        value = next(entry["stages"] for entry in listed if isinstance(entry, dict) and "stages" in entry)
    shown = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
    return "given by the model's file" if value == "???" else f"`{shown}`"


def _shown(key: Key) -> str:
    lines = [
        f"```{{confval}} {key.name}",
        f":type: {_quoted(key.takes)}",
        f":default: {_quoted(key.default)}",
        "",
        docstrings.sentence(docstrings.markdown(key.text)),
        "```",
        "",
    ]
    if key.items is not None:
        lines += [f"Each item of `{key.name}` has these keys:", "", _item_table(key.items)]
    return "\n".join(lines)


def _item_table(kind: type) -> str:
    said, hints = docstrings.described(kind), typing.get_type_hints(kind)
    missing = [item.name for item in dataclasses.fields(kind) if item.name not in said]
    if missing:
        raise docstrings.UndescribedError(f"{kind.__qualname__} does not describe {', '.join(missing)}")
    return docstrings.table(
        ("key", "takes", "what"),
        ([f"`{item.name}`", describe(hints[item.name]), docstrings.sentence(docstrings.cell(said[item.name]))]
         for item in dataclasses.fields(kind)),
    )  # fmt: skip


def _choices(group: str) -> str:
    """The files of a group, each with what it says of itself; of models what their builders take."""
    files = sorted((CONF / group).glob("*.yaml"))
    rows = ([f"`{group}={file.stem}`", docstrings.sentence(docstrings.cell(about(file)))] for file in files)
    parts = [f"### Choices of {group}\n", docstrings.table(("choice", "what"), rows)]
    if group == "model":
        parts += [built for file in files if (built := _builder(file))]
    return "\n".join(parts)


def about(file: Path) -> str:
    """What a YAML file says of itself: the paragraph that it opens with as a comment, else its ``description``."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")]
    comment = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    text = " ".join(comment) or str((yaml.safe_load("\n".join(lines)) or {}).get("description", ""))
    if not text:
        raise docstrings.UndescribedError(f"{file.name}: neither a comment at its start nor a description")
    return re.sub(r"(?<![\w`/])([\w.+]+=[^\s;,]+\b)", r"``\1``", text)


def _builder(file: Path) -> str:
    """The keys of ``model.build`` that a model's file sets, as its builder describes them."""
    build = yaml.safe_load(file.read_text(encoding="utf-8"))["build"]
    target = build.pop("_target_")
    if not build:
        return ""
    said = docstrings.arguments(named(":".join(target.rsplit(".", 1))))
    rows = []
    for name, value in build.items():
        if name not in said:
            raise docstrings.UndescribedError(f"{target} does not describe {name}, which {file.name} sets")
        rows.append([f"`model.build.{name}`", _default(name, value), docstrings.sentence(docstrings.cell(said[name]))])
    return f"With `model={file.stem}`:\n\n" + docstrings.table(("key", "default", "what"), rows)


def _group(name: str) -> str:
    return name.partition(".")[0] if "." in name else ""


def _as_type(found: Any) -> type | None:
    return found if isinstance(found, type) else None


def _quoted(text: str) -> str:
    """A value of a directive's option: YAML's single quotes."""
    return "'" + text.replace("'", "''") + "'"
