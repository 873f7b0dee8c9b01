"""docs/reference/configuration.md: every key of the configuration, and what each group's files are."""

import dataclasses
import re
import typing
from pathlib import Path

import yaml

from inductor_debug.pipeline.config import docstrings
from inductor_debug.pipeline.config.described_keys import Key, keys, shown_default
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


def page() -> str:
    """The whole page; UndescribedError where a key is described nowhere."""
    found = list(keys(Config(), ""))
    parts = [HEADER]
    for group, (title, about) in TITLES.items():
        parts.append(f"## {title}\n\n{about}\n")
        parts += [shown(key) for key in found if _group(key.name) == group and key.name != "stages"]
        if group in GROUPS:
            parts.append(_choices(group))
    parts.append("## stages\n\nThe stages that run, and their options.\n")
    parts += [shown(key) for key in found if key.name == "stages"]
    for stage in declared().values():
        if is_ours(stage):
            prefix = f"stages.{stage.name}"
            options = [shown(key) for key in keys(stage.options(), f"{prefix}.")]
            parts += [f"### {prefix}\n", *(options or ["This stage has no options.\n"])]
    return "\n".join(parts)


def shown(key: Key) -> str:
    """A key as the page has it; UndescribedError where no docstring says what it means."""
    if not key.text:
        raise docstrings.UndescribedError(f"{key.name}: no docstring describes it")
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
        rows.append(
            [f"`model.build.{name}`", shown_default(name, value), docstrings.sentence(docstrings.cell(said[name]))]
        )
    return f"With `model={file.stem}`:\n\n" + docstrings.table(("key", "default", "what"), rows)


def _group(name: str) -> str:
    return name.partition(".")[0] if "." in name else ""


def _quoted(text: str) -> str:
    """A value of a directive's option: YAML's single quotes."""
    return "'" + text.replace("'", "''") + "'"
